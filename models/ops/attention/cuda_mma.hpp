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

__device__ inline int lane_of_warp() { return static_cast<int>(threadIdx.x) % kWarpSize; }
__device__ inline int warp_of_block() { return static_cast<int>(threadIdx.x) / kWarpSize; }
/// Of number e (0 … 3) of a lane: its row of 16, and its column of 8.
__device__ inline int row_of(int e) { return lane_of_warp() / 4 + e / 2 * 8; }
__device__ inline int column_of(int e) { return lane_of_warp() % 4 * 2 + e % 2; }

/// Copies n rows of a head, zeros after them and after its D numbers. `row`: the distance of rows. By cp.async where the addresses allow
/// it: the caller commits and waits.
template <int kRows, int kD>
__device__ inline void copy_rows(const Reader& from, int64_t at, int64_t row, int n, int D, uint16_t* to) {
  const auto* const data = static_cast<const uint16_t*>(from.data) + at;
  constexpr int across = kD / 8;
  static_assert(kRows * across % kThreads == 0);
  const int thread = thread_again();
  if (D % 8 == 0 && row % 8 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0) {
#pragma unroll 1
    for (int k = 0; k < kRows * across / kThreads; ++k) {
      const int x = thread + k * kThreads, r = x / across, d = x % across * 8;
      const bool there = r < n && d < D;
      copy_async(to + r * kHalfRow<kD> + d, there ? data + r * row + d : data, there);
    }
  } else {
#pragma unroll 1
    for (int x = thread; x < kRows * kD; x += kThreads) {
      const int r = x / kD, d = x % kD;
      to[r * kHalfRow<kD> + d] = r < n && d < D ? data[r * row + d] : uint16_t{0};
    }
  }
}

/// out[m] = rows[16m …] · columnsᵀ over the kD numbers of each, 8·kJ columns. `rows`: the warp's.
template <class T, int kD, int kM, int kJ>
__device__ inline void multiply(const uint16_t* rows, const uint16_t* columns, float (&out)[kM][kJ][4]) {
  const int lane = thread_again() % kWarpSize;
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

/// sums[m] += weights[m] · values: the weights as multiply() left them, rounded to 16 bits, as in FlashAttention; 8·kJ rows of `values`.
template <class T, int kD, int kM, int kJ>
__device__ inline void accumulate(const float (&weights)[kM][kJ][4], const uint16_t* values, float (&sums)[kM][kD / 8][4]) {
  const int lane = thread_again() % kWarpSize;
  const uint16_t* const b_row = values + lane % 16 * kHalfRow<kD> + lane / 16 * 8;
#pragma unroll
  for (int k = 0; k < kJ / 2; ++k) {
    uint32_t a[kM][4];
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int r = 0; r < 4; ++r) a[m][r] = pack_pair<T>(weights[m][2 * k + r / 2][r % 2 * 2], weights[m][2 * k + r / 2][r % 2 * 2 + 1]);
#pragma unroll
    for (int j = 0; j < kD / 16; ++j) {
      uint32_t b[4];
      load_transposed(b, b_row + k * 16 * kHalfRow<kD> + j * 16);
#pragma unroll
      for (int m = 0; m < kM; ++m) {
        mma<T>(sums[m][2 * j], a[m], {b[0], b[1]});
        mma<T>(sums[m][2 * j + 1], a[m], {b[2], b[3]});
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

/// to[at + i·row …] = row i of the warp's sums times factors[m][of the row's half], for i < n. `at`: of the warp's first row.
template <class T, int kD, int kM>
__device__ inline void store_products(const float (&sums)[kM][kD / 8][4], const float (&factors)[kM][2], const Writer& to, int64_t at,
                                      int64_t row, int n, int D) {
  T* const first = static_cast<T*>(to.data) + at + column_of(0);
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int i = m * 16 + row_of(2 * half), left = D - column_of(0);
      if (i >= n) continue;
#pragma unroll
      for (int j = 0; j < kD / 8; ++j) {
        const float x[2] = {factors[m][half] * sums[m][j][2 * half], factors[m][half] * sums[m][j][2 * half + 1]};
        store_some(first + i * row + j * 8, left - j * 8, x);
      }
    }
}

/// The sizes of heads that tensor cores are used for: multiples of 16.
template <class Body>
void by_mma_size(int64_t D, const Body& body) {
  if (D <= 64) body(std::integral_constant<int, 64>());
  else if (D <= 96) body(std::integral_constant<int, 96>());
  else if (D <= 128) body(std::integral_constant<int, 128>());
  else body(std::integral_constant<int, 256>());
}

/// Why a node is none for tensor cores; null: it is one. These inputs and outputs, where they are there, have one dtype of 16 bits: weights
/// are rounded to it, which is not enough for results in F32.
inline const char* no_halves(const Node& n, std::initializer_list<uint32_t> inputs, std::initializer_list<uint32_t> outputs) {
  const uint32_t dtype = n.in(models::attention_input::Q).dtype;
  if (dtype != GALLEY_BF16 && dtype != GALLEY_F16) return "dtypes: tensor cores take BF16 and F16";
  for (const uint32_t i : inputs)
    if (n.has(i) && n.in(i).dtype != dtype) return "operands of several dtypes";
  for (const uint32_t i : outputs)
    if (n.has_out(i) && n.out(i).dtype != dtype) return "results of another dtype than the operands";
  return nullptr;
}

}  // namespace galley::cuda::attention
