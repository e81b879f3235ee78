// Tiles in BF16 or F16 and their products on tensor cores (galley/cuda/mma.hpp): rows of heads in shared memory as they are, 4 warps, each
// with 16 rows of a product at a time (or twice 16).
//
// Rows have eight numbers more than a head, so that the eight rows of a matrix that ldmatrix reads meet different banks.
//
// A product's sums lie as mma leaves them: of n columns, n/8 times four numbers a lane, row g (the first two) and g + 8, columns 2t and
// 2t + 1 of eight (g = lane / 4, t = lane % 4). So a row is spread over four lanes of one warp.
#pragma once

#include "galley/cuda/mma.hpp"
#include "ops/attention/cuda_call.hpp"

namespace galley::cuda::attention {

template <int kD>
inline constexpr int kHalfRow = kD + 8;

inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / kWarpSize; }
/// Of number e (0 … 3) of a lane: its row of 16, and its column of 8.
__device__ inline int row_of(int e) { return lane_of_warp() / 4 + e / 2 * 8; }
__device__ inline int column_of(int e) { return lane_of_warp() % 4 * 2 + e % 2; }

/// Copies n rows of a head, zeros behind them and behind its D numbers. `row`: the distance of rows. By cp.async where the addresses allow
/// it: the caller commits and waits.
template <int kRows, int kD>
__device__ inline void copy_rows(const Reader& from, int64_t at, int64_t row, int n, int D, uint16_t* to) {
  const auto* const data = static_cast<const uint16_t*>(from.data) + at;
  constexpr int across = kD / 8;
  static_assert(kRows * across % kThreads == 0);
  if (D % 8 == 0 && row % 8 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0) {
#pragma unroll 1
    for (int k = 0; k < kRows * across / kThreads; ++k) {
      const int x = static_cast<int>(threadIdx.x) + k * kThreads, r = x / across, d = x % across * 8;
      const bool there = r < n && d < D;
      copy_async(to + r * kHalfRow<kD> + d, there ? data + r * row + d : data, there);
    }
  } else {
    for (int x = static_cast<int>(threadIdx.x); x < kRows * kD; x += kThreads) {
      const int r = x / kD, d = x % kD;
      to[r * kHalfRow<kD> + d] = r < n && d < D ? data[r * row + d] : uint16_t{0};
    }
  }
}

/// out[m] = rows[16m …] · columnsᵀ over the kD numbers of each, 8·kJ columns. `rows`: the warp's.
template <class T, int kD, int kM, int kJ>
__device__ inline void multiply(const uint16_t* rows, const uint16_t* columns, float (&out)[kM][kJ][4]) {
  const int lane = lane_of_warp();
  const uint16_t* const a_row = rows + lane % 16 * kHalfRow<kD> + lane / 16 * 8;
  const uint16_t* const b_row = columns + (lane % 8 + lane / 16 * 8) * kHalfRow<kD> + lane / 8 % 2 * 8;
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int j = 0; j < kJ; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) out[m][j][e] = 0.0f;
#pragma unroll 2
  for (int d = 0; d < kD; d += 16) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m) load_matrices(a[m], a_row + m * 16 * kHalfRow<kD> + d);
#pragma unroll
    for (int j = 0; j < kJ / 2; ++j) {
      uint32_t b[4];
      load_matrices(b, b_row + j * 16 * kHalfRow<kD> + d);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma<T>(out[m][2 * j], a[m], {b[0], b[1]});
        mma<T>(out[m][2 * j + 1], a[m], {b[2], b[3]});
      }
    }
  }
}

/// Weights, which are F32, go into a product in so many parts of 16 bits: the number rounded, and what rounding lost. With one part, as
/// FlashAttention has it, backward would take 7 products of tiles instead of 10, forward 2 instead of 3, and results would be off by as much
/// as rounding them to 16 bits costs, once more.
inline constexpr int kParts = 2;

/// sums[m] += weights[m] · values: the weights as multiply() left them; 8·kJ rows of `values`.
template <class T, int kD, int kM, int kJ>
__device__ inline void accumulate(const float (&weights)[kM][kJ][4], const uint16_t* values, float (&sums)[kM][kD / 8][4]) {
  const int lane = lane_of_warp();
  const uint16_t* const b_row = values + lane % 16 * kHalfRow<kD> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kJ / 2; ++k) {
    uint32_t a[kParts][kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        float low = weights[m][2 * k + r / 2][r % 2 * 2], high = weights[m][2 * k + r / 2][r % 2 * 2 + 1];
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          a[part][m][r] = pack_pair<T>(low, high);
          low -= low_of<T>(a[part][m][r]);
          high -= high_of<T>(a[part][m][r]);
        }
      }
#pragma unroll
    for (int j = 0; j < kD / 16; ++j) {
      uint32_t b[4];
      load_transposed(b, b_row + k * 16 * kHalfRow<kD> + j * 16);
#pragma unroll
      for (int part = 0; part < kParts; ++part)
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          mma<T>(sums[m][2 * j], a[part][m], {b[0], b[1]});
          mma<T>(sums[m][2 * j + 1], a[part][m], {b[2], b[3]});
        }
    }
  }
}

template <int kM, int kN>
__device__ inline void clear_sums(float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[m][j][e] = 0.0f;
}

template <class To, int kD, int kM>
__device__ inline void store_products_of(const float (&sums)[kM][kD / 8][4], const float (&factors)[kM][2], To* to, int64_t row, int n,
                                         int D) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = m * 16 + row_of(2 * half), left = D - column_of(0);
      if (i >= n) continue;
      To* const head = to + i * row + column_of(0);
#pragma unroll
      for (int j = 0; j < kD / 8; ++j) {
        const float x[2] = {factors[m][half] * sums[m][j][2 * half], factors[m][half] * sums[m][j][2 * half + 1]};
        store_some(head + j * 8, left - j * 8, x);
      }
    }
}
/// to[at + i·row …] = row i of the warp's sums times factors[m][of the row's half], for i < n. `at`: of the warp's first row.
template <int kD, int kM>
__device__ inline void store_products(const float (&sums)[kM][kD / 8][4], const float (&factors)[kM][2], const Writer& to, int64_t at,
                                      int64_t row, int n, int D) {
  if (to.dtype == GALLEY_BF16) store_products_of<Bf16, kD>(sums, factors, static_cast<Bf16*>(to.data) + at, row, n, D);
  else if (to.dtype == GALLEY_F16) store_products_of<F16, kD>(sums, factors, static_cast<F16*>(to.data) + at, row, n, D);
  else store_products_of<float, kD>(sums, factors, static_cast<float*>(to.data) + at, row, n, D);
}

/// The sizes of heads that tensor cores are used for: multiples of 16.
template <class Body>
void by_mma_size(int64_t D, const Body& body) {
  if (D <= 64) body(std::integral_constant<int, 64>());
  else if (D <= 96) body(std::integral_constant<int, 96>());
  else if (D <= 128) body(std::integral_constant<int, 128>());
  else body(std::integral_constant<int, 256>());
}

/// Why a node is none for tensor cores; null: it is one. All of these inputs that are there have one dtype of 16 bits.
inline const char* no_halves(const Node& n, std::initializer_list<uint32_t> inputs) {
  const uint32_t dtype = n.in(models::attention_input::Q).dtype;
  if (dtype != GALLEY_BF16 && dtype != GALLEY_F16) return "dtypes: tensor cores take BF16 and F16";
  for (const uint32_t i : inputs)
    if (n.has(i) && n.in(i).dtype != dtype) return "operands of several dtypes";
  return nullptr;
}

}  // namespace galley::cuda::attention
