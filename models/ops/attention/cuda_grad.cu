// The gradient of attention by fused multiply-adds, for any dtype: dq, dk, dv and dbias from q, k, v, lse and do (op.cpp has the
// definition). Probabilities are made again, tile by tile, from lse (Dao et al., arXiv:2205.14135).
//
// A block of 128 threads keeps 64 rows of two operands, q and do for dq, or k and v for dk and dv, and goes over columns, 32 at a time, of
// the two others (heads of 96 and 128: 32 rows; of 256: 16 by 16). For each pair of tiles it multiplies scores and dO·Vᵀ, then what it
// makes of them with the columns. Seven products in all for the five of one kernel, which would need atomic additions.
//
// Bound by multiply-adds and shared memory about alike. Shared memory: 36 KiB for heads of 32, 60 for 64, 54 for 96, 70 for 128, 66 for
// 256.
#include "ops/attention/cuda_grad.hpp"
#include "ops/attention/cuda_tiles.hpp"

namespace galley::cuda::attention {
namespace {

template <int kD>
struct GradSizes {
  static constexpr int kRows = kD <= 64 ? 64 : kD <= 128 ? 32 : 16, kColumns = kD <= 128 ? 32 : 16;
  static constexpr int64_t kShared = 4 * (2 * (kRows + kColumns) * kRow<kD> + kRows * kWeightRow<kColumns>);
};

template <int kD, bool kOfKeys>
__global__ void __launch_bounds__(kThreads, 2) attention_grad_tiles(GradCall call) {
  constexpr int kR = GradSizes<kD>::kRows, kC = GradSizes<kD>::kColumns, kQ = kOfKeys ? kC : kR, kK = kOfKeys ? kR : kC;
  constexpr int kRows = kR / kDown, kColumns = kC / kAcross;
  GALLEY_DYNAMIC_SHARED(float, shared);
  float *const rows1 = shared, *const rows2 = rows1 + kR * kRow<kD>;                          // q and do, or k and v
  float *const columns1 = rows2 + kR * kRow<kD>, *const columns2 = columns1 + kC * kRow<kD>;  // k and v, or q and do
  float* const weights = columns2 + kC * kRow<kD>;
  GALLEY_SHARED(int32_t, first, kQ);
  GALLEY_SHARED(int32_t, last, kQ);
  GALLEY_SHARED(float, lse, kQ);
  GALLEY_SHARED(float, delta, kQ);
  GALLEY_SHARED(float, line, kQ + kK);
  GALLEY_SHARED(float, of_distance, kQ + kK);
  GALLEY_SHARED(uint8_t, kept, kQ * kK / 4);
  const QueryRows query_rows = {first, last, lse, delta};
  const Call& a = call.a;
  const Piece at = kOfKeys ? piece_of_keys(a, kR) : piece_of_queries(a, kR);
  Steps<kOfKeys, kR, kC> step(call, at);
  Span span = {};
  float* biases = nullptr;

  if constexpr (kOfKeys) {
    load_rows<kR, kD>(call.k, kv_at(a, at.b, at.head, at.first), a.kv_row, at.n, a.D, 1.0f, rows1);
    load_rows<kR, kD>(call.v, kv_at(a, at.b, at.head, at.first), a.kv_row, at.n, a.D, 1.0f, rows2);
  } else {
    load_rows<kR, kD>(call.q, q_at(a, at.b, at.head, at.first), a.q_row, at.n, a.D, a.scale, rows1);
    load_rows<kR, kD>(call.go, o_at(a, at.b, at.head, at.first), a.o_row, at.n, a.D, 1.0f, rows2);
    fill_queries<kQ>(call, at.b, at.head, at.first, 1.0f, query_rows);
    span = span_of(a, at.b, at.first, at.n);
    if (call.dbias.there()) {
      biases = biases_of(call, at, (a.Sq + kR - 1) / kR);
      clear_buckets(a, biases);
    }
  }
  const auto place = [](int r, int c) {
    struct Pair {
      int qi, kj;
    };
    const int row = static_cast<int>(threadIdx.x) / kAcross + r * kDown, column = static_cast<int>(threadIdx.x) % kAcross + c * kAcross;
    return kOfKeys ? Pair{column, row} : Pair{row, column};
  };

  Sums<kRows, kD> sums1;                // dq or dk
  Sums<kOfKeys ? kRows : 1, kD> sums2;  // dv
  clear<kRows, kD>(sums1);
  clear<kOfKeys ? kRows : 1, kD>(sums2);
  for (; step.there(); step.next()) {
    const int query = kOfKeys ? step.first() : at.first, key = kOfKeys ? at.first : step.first();
    const int n = smaller(kC, (kOfKeys ? a.Sq : a.Sk) - step.first());
    if constexpr (kOfKeys) {
      load_rows<kC, kD>(call.q, q_at(a, at.b, step.head, query), a.q_row, n, a.D, a.scale, columns1);
      load_rows<kC, kD>(call.go, o_at(a, at.b, step.head, query), a.o_row, n, a.D, 1.0f, columns2);
      fill_queries<kQ>(call, at.b, step.head, query, 1.0f, query_rows);
    } else {
      load_rows<kC, kD>(call.k, kv_at(a, at.b, at.head / a.group, key), a.kv_row, n, a.D, 1.0f, columns1);
      load_rows<kC, kD>(call.v, kv_at(a, at.b, at.head / a.group, key), a.kv_row, n, a.D, 1.0f, columns2);
    }
    fill_line<kQ, kK>(a, step.head, query, key, 1.0f, line);
    fill_kept<kQ, kK>(a, at.b, step.head, query, key, kept);
    __syncthreads();
    const bool masked = step.masks(span);
    float p[kRows][kColumns], ds[kRows][kColumns];
    product<kD>(rows1, columns1, a.D, p);
    product<kD>(rows2, columns2, a.D, ds);
    // From scores and dO·Vᵀ to P∘M and dS; dS times the cap's derivative in `dx`.
    float dx[kRows][kColumns];
#pragma unroll
    for (int r = 0; r < kRows; ++r)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const auto [qi, kj] = place(r, c);
        float s = p[r][c], slope = 1.0f;
        if (a.softcap > 0.0f) {
          const float t = tanhf(s / a.softcap);
          s = a.softcap * t;
          slope = 1.0f - t * t;
        }
        if (a.relative()) s += line[on_line<kQ>(qi, kj)];
        bool alone = false;  // one key only: the gradient of its score is exactly 0, not what two sums of the same products leave
        if (masked) {
          alone = first[qi] == last[qi];
          if (key + kj < first[qi] || key + kj > last[qi]) s = -INFINITY;
        }
        const float probability = expf(s - lse[qi]), m = a.threshold ? kept_of<kK>(a, kept, qi, kj) : 1.0f;
        p[r][c] = probability * m;
        ds[r][c] = alone ? 0.0f : probability * (ds[r][c] * m - delta[qi]);
        dx[r][c] = slope * ds[r][c];
      }
    if constexpr (kOfKeys) {
      put_weights(p, weights);
      __syncwarp();
      combine<kD, kC, kRows>(weights, columns2, sums2);
      __syncwarp();
    } else if (call.dbias.there()) {
      put_weights(ds, weights);
      __syncthreads();
      sum_distances<kQ, kK, kWeightRow<kC>>(weights, of_distance);
      __syncthreads();
      add_buckets<kQ, kK>(a, query, key, of_distance, biases);
    }
    put_weights(dx, weights);
    __syncwarp();
    combine<kD, kC, kRows>(weights, columns1, sums1);
    __syncthreads();
  }

  float factors[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) factors[r] = kOfKeys ? 1.0f : a.scale;
  if constexpr (kOfKeys) {
    const int64_t to = kv_at(a, at.b, at.head, at.first);
    if (call.dk.there()) store_sums<kRows, kD>(sums1, factors, call.dk, to, a.kv_row, at.n, a.D);
    if (call.dv.there()) store_sums<kRows, kD>(sums2, factors, call.dv, to, a.kv_row, at.n, a.D);
  } else {
    store_sums<kRows, kD>(sums1, factors, call.dq, q_at(a, at.b, at.head, at.first), a.q_row, at.n, a.D);
  }
}

}  // namespace

const char* Multiplied::refuses_gradient(const Node& n, const AttentionExtents& e) { return refuses_forward(n, e); }

GradTiles Multiplied::grad_tiles(int64_t D) {
  GradTiles tiles = {};
  by_head_size(D, [&](auto size) { tiles = {GradSizes<size()>::kColumns, GradSizes<size()>::kRows}; });
  return tiles;
}

void Multiplied::prepare_gradient(const AttentionExtents& e) {
  by_head_size(e.D, [](auto size) {
    allow_shared(attention_grad_tiles<size(), false>, GradSizes<size()>::kShared);
    allow_shared(attention_grad_tiles<size(), true>, GradSizes<size()>::kShared);
  });
}

void Multiplied::gradient(const GradCall& c, galley_queue* queue) {
  by_head_size(c.a.D, [&](auto size) {
    constexpr int kR = GradSizes<size()>::kRows;
    const int64_t of_queries = static_cast<int64_t>(c.a.B) * c.a.heads * ((c.a.Sq + kR - 1) / kR);
    const int64_t of_keys = static_cast<int64_t>(c.a.B) * (c.a.heads / c.a.group) * ((c.a.Sk + kR - 1) / kR);
    prepare_queries(c, GradSizes<size()>::kColumns, queue);
    launch(attention_grad_tiles<size(), false>, {of_queries, kThreads, GradSizes<size()>::kShared}, queue, c);
    launch(attention_grad_tiles<size(), true>, {of_keys, kThreads, GradSizes<size()>::kShared}, queue, c);
    add_biases(c, kR, queue);
  });
}

}  // namespace galley::cuda::attention
