// The gradient of attention in BF16 and F16 on tensor cores: what cuda_grad.cu computes, split in the same way. Products in 16 bits with
// sums in F32; probabilities and dS go into products in 16 bits, never through shared memory.
//
// A block of 4 warps keeps 64 rows of two operands, a warp 16 of them, and goes over columns of the two others, 64 at a time (heads of 96
// and 128: 32; for dk and dv of 128: 16, by registers). The next tile of columns is copied while this one is computed with: one barrier a
// tile. Heads of up to 128 numbers: two sums of 16 × 256 are more than a warp's registers hold.
//
// Exponents are kept in units of 1/log₂e. Bound by tensor cores and shared memory. Shared memory: 54 KiB for heads of 64, 52 for 96, 68 for
// 128; where biases have a gradient, 9 to 17 more.
#include "ops/attention/cuda_grad.hpp"
#include "ops/attention/cuda_mma.hpp"

namespace galley::cuda::attention {
namespace {

template <int kD, bool kOfKeys>
struct MmaGradSizes {
  static constexpr int kR = 64, kC = kD <= 64 ? 64 : kD <= 96 || !kOfKeys ? 32 : 16, kTile = kC * kHalfRow<kD>;
  static constexpr int kStride = kC + 4;  // of dS in F32, for the gradient of biases
  static constexpr int64_t shared(bool for_biases) { return 2 * (2 * kR * kHalfRow<kD> + 4 * kTile) + (for_biases ? 4 * kR * kStride : 0); }
};

template <class T, int kD, bool kOfKeys>
__global__ void __launch_bounds__(kThreads, 2) attention_grad_mma(GradCall call) {
  using Size = MmaGradSizes<kD, kOfKeys>;
  constexpr int kR = Size::kR, kC = Size::kC, kQ = kOfKeys ? kC : kR, kK = kOfKeys ? kR : kC, kJ = kC / 8;
  constexpr int kLine = kQ + kK, kKept = kQ * kK / 4;
  GALLEY_DYNAMIC_SHARED(uint16_t, shared);
  uint16_t *const rows1 = shared, *const rows2 = rows1 + kR * kHalfRow<kD>;  // q and do, or k and v
  uint16_t* const tiles = rows2 + kR * kHalfRow<kD>;                         // k and v, or q and do: of this step, of the next one
  float* const ds = reinterpret_cast<float*>(tiles + 4 * Size::kTile);       // (kQ, kStride), only for dbias
  GALLEY_SHARED(int32_t, first, 2 * kQ);
  GALLEY_SHARED(int32_t, last, 2 * kQ);
  GALLEY_SHARED(float, lse, 2 * kQ);
  GALLEY_SHARED(float, delta, 2 * kQ);
  GALLEY_SHARED(float, line, 2 * kLine);
  GALLEY_SHARED(float, of_distance, kLine);
  GALLEY_SHARED(uint8_t, kept, 2 * kKept);
  const Call& a = call.a;
  const Piece at = kOfKeys ? piece_of_keys(a, kR) : piece_of_queries(a, kR);
  const int row = warp_of_block() * 16;
  Steps<kOfKeys, kR, kC> step(call, at);
  const auto load = [&](int stage) {
    const int n = smaller(kC, (kOfKeys ? a.Sq : a.Sk) - step.first());
    uint16_t *const to1 = tiles + 2 * stage * Size::kTile, *const to2 = to1 + Size::kTile;
    if constexpr (kOfKeys) {
      copy_rows<kC, kD>(call.q, q_at(a, at.b, step.head, step.first()), a.q_row, n, a.D, to1);
      copy_rows<kC, kD>(call.go, o_at(a, at.b, step.head, step.first()), a.o_row, n, a.D, to2);
      fill_queries<kQ>(call, at.b, step.head, step.first(), float(kLog2e),
                       {first + stage * kQ, last + stage * kQ, lse + stage * kQ, delta + stage * kQ});
    } else {
      copy_rows<kC, kD>(call.k, kv_at(a, at.b, at.head / a.group, step.first()), a.kv_row, n, a.D, to1);
      copy_rows<kC, kD>(call.v, kv_at(a, at.b, at.head / a.group, step.first()), a.kv_row, n, a.D, to2);
    }
    const int query = kOfKeys ? step.first() : at.first, key = kOfKeys ? at.first : step.first();
    fill_line<kQ, kK>(a, step.head, query, key, float(kLog2e), line + stage * kLine);
    fill_kept<kQ, kK>(a, at.b, step.head, query, key, kept + stage * kKept);
  };

  Span span = {};
  float* biases = nullptr;
  if constexpr (!kOfKeys) {
    span = span_of(a, at.b, at.first, at.n);
    if (call.dbias.there()) {
      biases = biases_of(call, at, (a.Sq + kR - 1) / kR);
      clear_buckets(a, biases);
    }
  }
  bool there = step.there();
  if (there) {
    if constexpr (kOfKeys) {
      copy_rows<kR, kD>(call.k, kv_at(a, at.b, at.head, at.first), a.kv_row, at.n, a.D, rows1);
      copy_rows<kR, kD>(call.v, kv_at(a, at.b, at.head, at.first), a.kv_row, at.n, a.D, rows2);
    } else {
      copy_rows<kR, kD>(call.q, q_at(a, at.b, at.head, at.first), a.q_row, at.n, a.D, rows1);
      copy_rows<kR, kD>(call.go, o_at(a, at.b, at.head, at.first), a.o_row, at.n, a.D, rows2);
      fill_queries<kQ>(call, at.b, at.head, at.first, float(kLog2e), {first, last, lse, delta});
    }
    load(0);
  }
  GALLEY_ASYNC_COMMIT();

  float sums1[1][kD / 8][4];                // dq or dk
  float sums2[1][kOfKeys ? kD / 8 : 1][4];  // dv
  clear_sums(sums1);
  clear_sums(sums2);
  for (int stage = 0; there; stage ^= 1) {
    const int query = kOfKeys ? step.first() : at.first, key = kOfKeys ? at.first : step.first(), of_queries = kOfKeys ? stage * kQ : 0;
    const bool masked = step.masks(span);
    GALLEY_ASYNC_WAIT(0);
    __syncthreads();
    step.next();
    there = step.there();
    if (there) load(stage ^ 1);
    GALLEY_ASYNC_COMMIT();
    const uint16_t *const columns1 = tiles + 2 * stage * Size::kTile, *const columns2 = columns1 + Size::kTile;
    float p[1][kJ][4], dx[1][kJ][4];
    multiply<T, kD>(rows1 + row * kHalfRow<kD>, columns1, p);
    multiply<T, kD>(rows2 + row * kHalfRow<kD>, columns2, dx);
    // From q·k and dO·Vᵀ to P∘M, and dS times the cap's derivative.
#pragma unroll
    for (int j = 0; j < kJ; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int r = row + row_of(e), c = j * 8 + column_of(e), qi = kOfKeys ? c : r, kj = kOfKeys ? r : c;
        float s = a.exponent * p[0][j][e], slope = 1.0f;
        if (a.softcap > 0.0f) {
          const float t = tanhf(s);
          s = a.cap_exponent * t;
          slope = 1.0f - t * t;
        }
        if (a.relative()) s += line[stage * kLine + on_line<kQ>(qi, kj)];
        bool alone = false;  // one key only: the gradient of its score is exactly 0, not what two sums of the same products leave
        if (masked) {
          const int least = first[of_queries + qi], most = last[of_queries + qi];
          alone = least == most;
          if (key + kj < least || key + kj > most) s = -INFINITY;
        }
        const float probability = exp2f(s - lse[of_queries + qi]);
        const float m = a.threshold ? kept_of<kK>(a, kept + stage * kKept, qi, kj) : 1.0f;
        const float x = alone ? 0.0f : probability * (dx[0][j][e] * m - delta[of_queries + qi]);
        if (!kOfKeys && biases) ds[qi * Size::kStride + kj] = x;
        p[0][j][e] = probability * m;
        dx[0][j][e] = slope * x;
      }
    if constexpr (kOfKeys) {
      accumulate<T, kD>(p, columns2, sums2);
    } else if (biases) {
      __syncthreads();
      sum_distances<kQ, kK, Size::kStride>(ds, of_distance);
      __syncthreads();
      add_buckets<kQ, kK>(a, query, key, of_distance, biases);
    }
    accumulate<T, kD>(dx, columns1, sums1);
  }

  const float scale[1][2] = {{a.scale, a.scale}}, one[1][2] = {{1.0f, 1.0f}};
  if constexpr (kOfKeys) {
    const int64_t to = kv_at(a, at.b, at.head, at.first + row);
    if (call.dk.there()) store_products<T, kD>(sums1, scale, call.dk, to, a.kv_row, a.Sk - at.first - row, a.D);
    if (call.dv.there()) store_products<T, kD>(sums2, one, call.dv, to, a.kv_row, a.Sk - at.first - row, a.D);
  } else {
    store_products<T, kD>(sums1, scale, call.dq, q_at(a, at.b, at.head, at.first + row), a.q_row, a.Sq - at.first - row, a.D);
  }
}

/// body(std::integral_constant<int, size>) for heads that backward takes.
template <class Body>
void by_grad_size(int64_t D, const Body& body) {
  if (D <= 64) body(std::integral_constant<int, 64>());
  else if (D <= 96) body(std::integral_constant<int, 96>());
  else body(std::integral_constant<int, 128>());
}

template <class T>
void launch_gradient(const GradCall& c, galley_queue* queue) {
  by_grad_size(c.a.D, [&](auto size) {
    using Queries = MmaGradSizes<size(), false>;
    using Keys = MmaGradSizes<size(), true>;
    const int64_t of_queries = static_cast<int64_t>(c.a.B) * c.a.heads * ((c.a.Sq + Queries::kR - 1) / Queries::kR);
    const int64_t of_keys = static_cast<int64_t>(c.a.B) * (c.a.heads / c.a.group) * ((c.a.Sk + Keys::kR - 1) / Keys::kR);
    const int64_t shared = Queries::shared(c.dbias.there());
    prepare_queries(c, Keys::kC, queue);
    launch(attention_grad_mma<T, size(), false>, {of_queries, kThreads, shared}, queue, c);
    launch(attention_grad_mma<T, size(), true>, {of_keys, kThreads, Keys::shared(false)}, queue, c);
    add_biases(c, Queries::kR, queue);
  });
}

}  // namespace

const char* TensorCores::refuses_gradient(const Node& n, const AttentionExtents& e) {
  using namespace models::attention_input;
  using namespace models::attention_output;
  if (const char* why = no_halves(n, {Q, K, V, DO}, {DQ, DK, DV})) return why;
  if (e.D > 128) return "heads of more than 128 numbers";
  return Multiplied::refuses_gradient(n, e);
}

GradTiles TensorCores::grad_tiles(int64_t D) {
  GradTiles tiles = {};
  by_grad_size(D, [&](auto size) { tiles = {MmaGradSizes<size(), true>::kC, MmaGradSizes<size(), false>::kR}; });
  return tiles;
}

void TensorCores::prepare_gradient(const AttentionExtents& e) {
  by_grad_size(e.D, [](auto size) {
    allow_shared(attention_grad_mma<Bf16, size(), false>, MmaGradSizes<size(), false>::shared(true));
    allow_shared(attention_grad_mma<F16, size(), false>, MmaGradSizes<size(), false>::shared(true));
    allow_shared(attention_grad_mma<Bf16, size(), true>, MmaGradSizes<size(), true>::shared(false));
    allow_shared(attention_grad_mma<F16, size(), true>, MmaGradSizes<size(), true>::shared(false));
  });
}

void TensorCores::gradient(const GradCall& c, galley_queue* queue) {
  if (c.q.dtype == GALLEY_BF16) launch_gradient<Bf16>(c, queue);
  else launch_gradient<F16>(c, queue);
}

}  // namespace galley::cuda::attention
