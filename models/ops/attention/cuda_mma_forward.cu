// Attention in BF16 and F16 on tensor cores: o and lse as cuda_forward.cu makes them. Products in 16 bits with sums in F32, the softmax in
// F32 (Dao: "FlashAttention-2", arXiv:2307.08691); probabilities go into their product with v in 16 bits.
//
// A block of 4 warps takes 128 queries of one head, a warp twice 16 of them, and goes over its keys 32 at a time (heads of 256: 64 queries,
// 16 keys). The next tile of keys and values is copied while this one is computed with: one barrier a tile. Sums are scaled down only where
// some row's maximum grew, which changes no bit: the factors are 1 elsewhere.
//
// Scores are kept in units of 1/log₂e, so that a power of 2 is all that an exponential takes. Bound by tensor cores and these powers; two
// blocks a multiprocessor by registers. Shared memory: 36 KiB for heads of 64, 52 for 96, 68 for 128, 66 for 256.
#include "ops/attention/cuda_mma.hpp"
#include "ops/attention/cuda_variants.hpp"

namespace galley::cuda::attention {
namespace {

template <int kD>
struct MmaForwardSizes {
  static constexpr int kM = kD <= 128 ? 2 : 1, kQ = 64 * kM, kK = kD <= 128 ? 32 : 16;
  static constexpr int kTile = kK * kHalfRow<kD>;  // numbers of a tile of keys
  static constexpr int64_t kShared = 2 * (kQ * kHalfRow<kD> + 4 * kTile);
};

/// From q·k to scores: what op.cpp says, in units of 1/log₂e.
template <int kQ, int kM, int kJ>
__device__ inline void finish_scores(const Call& a, const float* line, bool masked, int key, const int32_t* first, const int32_t* last,
                                     float (&s)[kM][kJ][4]) {
  const int row = warp_of_block() * kM * 16;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int j = 0; j < kJ; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) s[m][j][e] *= a.exponent;
  if (a.softcap > 0.0f) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int j = 0; j < kJ; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[m][j][e] = a.cap_exponent * tanhf(s[m][j][e]);
  }
  if (a.relative()) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int j = 0; j < kJ; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[m][j][e] += line[on_line<kQ>(row + m * 16 + row_of(e), j * 8 + column_of(e))];
  }
  if (masked) {
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int from = first[row + m * 16 + row_of(2 * half)], to = last[row + m * 16 + row_of(2 * half)];
#pragma unroll
        for (int j = 0; j < kJ; ++j)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            const int at = key + j * 8 + column_of(e);
            if (at < from || at > to) s[m][j][e] = -INFINITY;
          }
      }
  }
}

template <class T, int kD>
__global__ void __launch_bounds__(kThreads, 2) attention_mma(ForwardCall call) {
  using Size = MmaForwardSizes<kD>;
  constexpr int kM = Size::kM, kQ = Size::kQ, kK = Size::kK, kLine = kQ + kK, kKept = kQ * kK / 4;
  GALLEY_DYNAMIC_SHARED(uint16_t, shared);
  uint16_t *const q = shared, *const tiles = q + kQ * kHalfRow<kD>;  // k and v of this step, k and v of the next one
  GALLEY_SHARED(int32_t, first, kQ);
  GALLEY_SHARED(int32_t, last, kQ);
  GALLEY_SHARED(float, line, 2 * kLine);
  GALLEY_SHARED(uint8_t, kept, 2 * kKept);
  const Call& a = call.a;
  const Piece at = piece_of_queries(a, kQ);
  const Span span = span_of(a, at.b, at.first, at.n);
  const int row = warp_of_block() * kM * 16;
  const auto load = [&](int key, int stage) {
    const int64_t from = kv_at(a, at.b, at.head / a.group, key);
    const int n = smaller(kK, a.Sk - key);
    copy_rows<kK, kD>(call.k, from, a.kv_row, n, a.D, tiles + 2 * stage * Size::kTile);
    copy_rows<kK, kD>(call.v, from, a.kv_row, n, a.D, tiles + (2 * stage + 1) * Size::kTile);
    fill_line<kQ, kK>(a, at.head, at.first, key, float(kLog2e), line + stage * kLine);
    fill_kept<kQ, kK>(a, at.b, at.head, at.first, key, kept + stage * kKept);
  };

  int key = span.begin / kK * kK;
  if (key < span.end) {
    copy_rows<kQ, kD>(call.q, q_at(a, at.b, at.head, at.first), a.q_row, at.n, a.D, q);
    for (int i = static_cast<int>(threadIdx.x); i < kQ; i += kThreads) {
      const Seen s = seen(a, at.b, at.first + smaller(i, at.n - 1));  // after the last query: as the last one
      first[i] = s.first;
      last[i] = s.last;
    }
    load(key, 0);
  }
  GALLEY_ASYNC_COMMIT();

  float largest[kM][2], sum[kM][2], o[kM][kD / 8][4];
  clear_sums(o);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) largest[m][half] = kLowest, sum[m][half] = 0.0f;

  for (int stage = 0; key < span.end; key += kK, stage ^= 1) {
    GALLEY_ASYNC_WAIT(0);
    __syncthreads();
    if (key + kK < span.end) load(key + kK, stage ^ 1);
    GALLEY_ASYNC_COMMIT();
    float s[kM][kK / 8][4], shrink[kM][2];
    multiply<T, kD>(q + row * kHalfRow<kD>, tiles + 2 * stage * Size::kTile, s);
    finish_scores<kQ>(a, line + stage * kLine, span.masks(key, kK), key, first, last, s);
    bool grew = false;
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = largest[m][half];
#pragma unroll
        for (int j = 0; j < kK / 8; ++j) most = fmaxf(most, fmaxf(s[m][j][2 * half], s[m][j][2 * half + 1]));
        most = warp_reduce<4>(most, Max());
        grew = grew || most > largest[m][half];
        shrink[m][half] = exp2f(largest[m][half] - most);
        largest[m][half] = most;
        sum[m][half] *= shrink[m][half];
      }
    if (__any_sync(kAllLanes, grew)) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int j = 0; j < kD / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) o[m][j][e] *= shrink[m][e / 2];
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int j = 0; j < kK / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          s[m][j][e] = exp2f(s[m][j][e] - largest[m][e / 2]);
          sum[m][e / 2] += s[m][j][e];
        }
    if (a.threshold) {
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int j = 0; j < kK / 8; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) s[m][j][e] *= kept_of<kK>(a, kept + stage * kKept, row + m * 16 + row_of(e), j * 8 + column_of(e));
    }
    accumulate<T, kD>(s, tiles + (2 * stage + 1) * Size::kTile, o);
  }

  // A query that saw no key has a sum of 0: its lse is −∞, and o is to be 0.
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float all = warp_sum<4>(sum[m][half]);
      const int i = row + m * 16 + row_of(2 * half);
      if (at.first + i < a.Sq && column_of(0) == 0)
        call.lse[lse_at(a, at.b, at.head, at.first + i)] = float(kLn2) * (largest[m][half] + log2f(all));
      sum[m][half] = all == 0.0f ? 0.0f : 1.0f / all;
    }
  store_products<T, kD>(o, sum, call.o, o_at(a, at.b, at.head, at.first + row), a.o_row, a.Sq - at.first - row, a.D);
}

template <class T>
void launch_forward(const ForwardCall& c, galley_queue* queue) {
  by_mma_size(c.a.D, [&](auto size) {
    using Size = MmaForwardSizes<size()>;
    const int64_t blocks = static_cast<int64_t>(c.a.B) * c.a.heads * ((c.a.Sq + Size::kQ - 1) / Size::kQ);
    launch(attention_mma<T, size()>, {blocks, kThreads, Size::kShared}, queue, c);
  });
}

}  // namespace

const char* TensorCores::refuses_forward(const Node& n, const AttentionExtents& e) {
  using namespace models::attention_input;
  if (const char* why = no_halves(n, {Q, K, V}, {0})) return why;
  return Multiplied::refuses_forward(n, e);
}

void TensorCores::prepare_forward(const AttentionExtents& e) {
  by_mma_size(e.D, [](auto size) {
    allow_shared(attention_mma<Bf16, size()>, MmaForwardSizes<size()>::kShared);
    allow_shared(attention_mma<F16, size()>, MmaForwardSizes<size()>::kShared);
  });
}

void TensorCores::forward(const ForwardCall& c, galley_queue* queue) {
  if (c.q.dtype == GALLEY_BF16) launch_forward<Bf16>(c, queue);
  else launch_forward<F16>(c, queue);
}

}  // namespace galley::cuda::attention
