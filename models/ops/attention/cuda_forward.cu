// Attention by fused multiply-adds, for any dtype (op.cpp has the definition): o (B, Sq, heads·D) and lse (B, heads, Sq) from q, k and v.
//
// A block of 128 threads takes 64 queries of one head and goes over its keys, 32 at a time (heads of 256: 32 queries, 16 keys), with a
// running maximum and sum for each query (Dao et al., arXiv:2205.14135; Milakov and Gimelshein, arXiv:1805.02867). Tiles of keys begin at
// multiples of their size whatever a query sees, and those that no query of the block sees are left out: a query's sums have one order.
//
// Bound by multiply-adds: in a step of four numbers of D, a thread reads 10 vectors of shared memory for 64 of them. Shared memory: 27 KiB
// for heads of 32, 43 for 64, 59 for 96, 75 for 128, 67 for 256.
#include "ops/attention/cuda_tiles.hpp"
#include "ops/attention/cuda_variants.hpp"

namespace galley::cuda::attention {
namespace {

template <int kD>
struct ForwardSizes {
  static constexpr int kQ = kD <= 128 ? 64 : 32, kK = kD <= 128 ? 32 : 16;
  static constexpr int64_t kShared = 4 * ((kQ + 2 * kK) * kRow<kD> + kQ * kWeightRow<kK>);
};

/// The thread's part of a tile's scores.
template <int kQ, int kK>
struct Scores {
  static constexpr int kRows = kQ / kDown, kColumns = kK / kAcross;
  float x[kRows][kColumns];

  __device__ static int qi(int r) { return static_cast<int>(threadIdx.x) / kAcross + r * kDown; }
  __device__ static int kj(int c) { return static_cast<int>(threadIdx.x) % kAcross + c * kAcross; }

  __device__ void finish(const Call& a, const float* line, bool masked, int key, const int32_t* first, const int32_t* last) {
    if (a.softcap > 0.0f) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) x[r][c] = a.softcap * tanhf(x[r][c] / a.softcap);
    }
    if (a.relative()) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) x[r][c] += line[on_line<kQ>(qi(r), kj(c))];
    }
    if (masked) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c)
          if (key + kj(c) < first[qi(r)] || key + kj(c) > last[qi(r)]) x[r][c] = -INFINITY;
    }
  }
};

template <int kD>
__global__ void __launch_bounds__(kThreads, 2) attention_tiles(ForwardCall call) {
  constexpr int kQ = ForwardSizes<kD>::kQ, kK = ForwardSizes<kD>::kK, kRows = kQ / kDown, kColumns = kK / kAcross;
  GALLEY_DYNAMIC_SHARED(float, shared);
  float *const q = shared, *const k = q + kQ * kRow<kD>, *const v = k + kK * kRow<kD>, *const weights = v + kK * kRow<kD>;
  GALLEY_SHARED(int32_t, first, kQ);
  GALLEY_SHARED(int32_t, last, kQ);
  GALLEY_SHARED(float, line, kQ + kK);
  GALLEY_SHARED(uint8_t, kept, kQ * kK / 4);
  const Call& a = call.a;
  const Piece at = piece_of_queries(a, kQ);
  const int kv_head = at.head / a.group;

  const Span span = span_of(a, at.b, at.first, at.n);
  for (int i = static_cast<int>(threadIdx.x); i < kQ; i += kThreads) {
    const Seen s = seen(a, at.b, at.first + smaller(i, at.n - 1));  // after the last query: as the last one
    first[i] = s.first;
    last[i] = s.last;
  }
  load_rows<kQ, kD>(call.q, q_at(a, at.b, at.head, at.first), a.q_row, at.n, a.D, a.scale, q);

  float largest[kRows], sum[kRows], shrink[kRows];
  Sums<kRows, kD> o;
  clear<kRows, kD>(o);
#pragma unroll
  for (int r = 0; r < kRows; ++r) largest[r] = kLowest, sum[r] = 0.0f;

  for (int key = span.begin / kK * kK; key < span.end; key += kK) {
    const int n = smaller(kK, a.Sk - key);
    load_rows<kK, kD>(call.k, kv_at(a, at.b, kv_head, key), a.kv_row, n, a.D, 1.0f, k);
    load_rows<kK, kD>(call.v, kv_at(a, at.b, kv_head, key), a.kv_row, n, a.D, 1.0f, v);
    fill_line<kQ, kK>(a, at.head, at.first, key, 1.0f, line);
    fill_kept<kQ, kK>(a, at.b, at.head, at.first, key, kept);
    __syncthreads();
    Scores<kQ, kK> s;
    product<kD>(q, k, a.D, s.x);
    s.finish(a, line, span.masks(key, kK), key, first, last);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float most = largest[r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) most = fmaxf(most, s.x[r][c]);
      most = warp_reduce<kAcross>(most, Max());
      shrink[r] = expf(largest[r] - most);
      largest[r] = most;
      sum[r] *= shrink[r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        s.x[r][c] = expf(s.x[r][c] - most);
        sum[r] += s.x[r][c];
      }
    }
    if (a.threshold) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int c = 0; c < kColumns; ++c) s.x[r][c] *= kept_of<kK>(a, kept, s.qi(r), s.kj(c));
    }
    put_weights(s.x, weights);
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int g = 0; g < Columns<kD>::kGroups; ++g)
#pragma unroll
        for (int c = 0; c < Columns<kD>::kWide; ++c) o[r][g][c] *= shrink[r];
    __syncwarp();
    combine<kD, kK, kRows>(weights, v, o);
    __syncthreads();
  }

  // A query that saw no key has a sum of 0: its lse is −∞, and o is to be 0.
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    sum[r] = warp_sum<kAcross>(sum[r]);
    const int i = Scores<kQ, kK>::qi(r);
    if (i < at.n && threadIdx.x % kAcross == 0) call.lse[lse_at(a, at.b, at.head, at.first + i)] = largest[r] + logf(sum[r]);
    sum[r] = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
  }
  store_sums<kRows, kD>(o, sum, call.o, o_at(a, at.b, at.head, at.first), a.o_row, at.n, a.D);
}

}  // namespace

const char* Multiplied::refuses_forward(const Node& n, const AttentionExtents& e) {
  if (!all_numbers(n)) return "dtypes";
  if (e.D > 256) return "heads of more than 256 numbers";
  if (e.Sq >= 1 << 28 || e.Sk >= 1 << 28) return "sequences of 2^28 positions or more";
  if (e.B * e.heads * ((e.Sq + 15) / 16 + (e.Sk + 15) / 16) > 0x7FFFFFFF) return "more than 2^31 blocks";
  return nullptr;
}

void Multiplied::prepare_forward(const AttentionExtents& e) {
  by_head_size(e.D, [](auto size) { allow_shared(attention_tiles<size()>, ForwardSizes<size()>::kShared); });
}

void Multiplied::forward(const ForwardCall& c, galley_queue* queue) {
  by_head_size(c.a.D, [&](auto size) {
    constexpr int kQ = ForwardSizes<size()>::kQ;
    const int64_t blocks = static_cast<int64_t>(c.a.B) * c.a.heads * ((c.a.Sq + kQ - 1) / kQ);
    launch(attention_tiles<size()>, {blocks, kThreads, ForwardSizes<size()>::kShared}, queue, c);
  });
}

}  // namespace galley::cuda::attention
