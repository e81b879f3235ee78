// Tiles in F32 and their products by fused multiply-adds, for any dtype: rows of heads in shared memory, 128 threads as 8 × 16.
//
// Rows have four numbers more than a head, so that the 16 lanes that read 16 rows at one place meet different banks, four numbers each. A
// thread with (ty, tx) has the rows ty + 8r and the columns tx + 16c of a product of two tiles, so a warp has whole rows: what is made of
// them goes through shared memory to the same warp's next product.
#pragma once

#include "ops/attention/cuda_call.hpp"

namespace galley::cuda::attention {

inline constexpr int kAcross = 16, kDown = kThreads / kAcross;

template <int kD>
inline constexpr int kRow = kD + 4;
/// Of a tile of weights with `kColumns` columns.
template <int kColumns>
inline constexpr int kWeightRow = kColumns + 4;

/// The columns of a head that a thread sums up: kGroups times kWide of them side by side.
template <int kD>
struct Columns {
  static constexpr int kWide = kD % 64 == 0 ? 4 : 2, kGroups = kD / (kAcross * kWide);
  /// The first column of a group.
  __device__ static int at(int group) { return (group * kAcross + static_cast<int>(threadIdx.x) % kAcross) * kWide; }
};
/// A thread's sums: kRows rows of its columns.
template <int kRows, int kD>
using Sums = float[kRows][Columns<kD>::kGroups][Columns<kD>::kWide];

template <class T, int kRows, int kD>
__device__ inline void load_rows_of(const T* from, int64_t row, int n, int D, float factor, float* to) {
  constexpr int width = 16 / static_cast<int>(sizeof(T)), across = kD / width, each = kRows * across / kThreads;
  constexpr int batch = each % 4 == 0 ? 4 : each % 3 == 0 ? 3 : each % 2 == 0 ? 2 : 1;  // loads that are under way at a time
  static_assert(kRows * across % kThreads == 0);
  if (D % width == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0 && row % width == 0) {
#pragma unroll 1
    for (int k = 0; k < each; k += batch) {
      Vector<T, width> v[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int x = static_cast<int>(threadIdx.x) + (k + i) * kThreads, r = x / across, d = x % across * width;
        if (r < n && d < D) v[i] = load_vector<T, width>(from + r * row + d);
        else v[i] = {};
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        const int x = static_cast<int>(threadIdx.x) + (k + i) * kThreads, r = x / across, d = x % across * width;
#pragma unroll
        for (int j = 0; j < width; j += 4) {
          Vector<float, 4> y;
#pragma unroll
          for (int l = 0; l < 4; ++l) y.at[l] = factor * widen(v[i].at[j + l]);
          store_vector<float, 4>(to + r * kRow<kD> + d + j, y);
        }
      }
    }
  } else {
    for (int x = static_cast<int>(threadIdx.x); x < kRows * kD; x += kThreads) {
      const int r = x / kD, d = x % kD;
      to[r * kRow<kD> + d] = r < n && d < D ? factor * widen(from[r * row + d]) : 0.0f;
    }
  }
}
/// to[r][d] = factor · from[r][d] for n rows of a head, zeros after them and after its D numbers. `row`: the distance of rows.
template <int kRows, int kD>
__device__ inline void load_rows(const Reader& from, int64_t at, int64_t row, int n, int D, float factor, float* to) {
  if (from.dtype == GALLEY_BF16) load_rows_of<Bf16, kRows, kD>(static_cast<const Bf16*>(from.data) + at, row, n, D, factor, to);
  else if (from.dtype == GALLEY_F16) load_rows_of<F16, kRows, kD>(static_cast<const F16*>(from.data) + at, row, n, D, factor, to);
  else load_rows_of<float, kRows, kD>(static_cast<const float*>(from.data) + at, row, n, D, factor, to);
}

/// out[r][c] = Σ_d rows[ty + 8r][d] · columns[tx + 16c][d].
template <int kD, int kRows, int kColumns>
__device__ inline void product(const float* rows, const float* columns, int D, float (&out)[kRows][kColumns]) {
  const float* x = rows + static_cast<int>(threadIdx.x) / kAcross * kRow<kD>;
  const float* y = columns + static_cast<int>(threadIdx.x) % kAcross * kRow<kD>;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) out[r][c] = 0.0f;
#pragma unroll 2
  for (int d = 0; d < D; d += 4) {
    Vector<float, 4> v[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) v[c] = load_vector<float, 4>(y + c * kAcross * kRow<kD> + d);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const Vector<float, 4> u = load_vector<float, 4>(x + r * kDown * kRow<kD> + d);
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
#pragma unroll
        for (int i = 0; i < 4; ++i) out[r][c] = fmaf(u.at[i], v[c].at[i], out[r][c]);
    }
  }
}

/// weights[ty + 8r][tx + 16c] = x[r][c]: (rows, kWeightRow). For the same warp, after a __syncwarp().
template <int kRows, int kColumns>
__device__ inline void put_weights(const float (&x)[kRows][kColumns], float* weights) {
  float* const to =
      weights + static_cast<int>(threadIdx.x) / kAcross * kWeightRow<kAcross * kColumns> + static_cast<int>(threadIdx.x) % kAcross;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) to[r * kDown * kWeightRow<kAcross * kColumns> + c * kAcross] = x[r][c];
}

/// sums[r][…] += Σ_k weights[ty + 8r][k] · values[k][…] over kInner rows of `values`.
template <int kD, int kInner, int kRows>
__device__ inline void combine(const float* weights, const float* values, Sums<kRows, kD>& sums) {
  using Mine = Columns<kD>;
  const float* w = weights + static_cast<int>(threadIdx.x) / kAcross * kWeightRow<kInner>;
#pragma unroll 1
  for (int k = 0; k < kInner; k += 4) {
    Vector<float, 4> u[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) u[r] = load_vector<float, 4>(w + r * kDown * kWeightRow<kInner> + k);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int g = 0; g < Mine::kGroups; ++g) {
        const Vector<float, Mine::kWide> v = load_vector<float, Mine::kWide>(values + (k + i) * kRow<kD> + Mine::at(g));
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int c = 0; c < Mine::kWide; ++c) sums[r][g][c] = fmaf(u[r].at[i], v.at[c], sums[r][g][c]);
      }
  }
}
template <int kRows, int kD>
__device__ inline void clear(Sums<kRows, kD>& sums) {
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int g = 0; g < Columns<kD>::kGroups; ++g)
#pragma unroll
      for (int c = 0; c < Columns<kD>::kWide; ++c) sums[r][g][c] = 0.0f;
}

/// Rows ty + 8r < n of a head, times factors[r].
template <int kRows, int kD>
__device__ inline void store_sums(const Sums<kRows, kD>& sums, const float (&factors)[kRows], const Writer& to, int64_t at, int64_t row,
                                  int n, int D) {
  using Mine = Columns<kD>;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int i = static_cast<int>(threadIdx.x) / kAcross + r * kDown;
    if (i >= n) continue;
#pragma unroll
    for (int g = 0; g < Mine::kGroups; ++g) {
      float x[Mine::kWide];
#pragma unroll
      for (int c = 0; c < Mine::kWide; ++c) x[c] = factors[r] * sums[r][g][c];
      store_some(to, at + i * row + Mine::at(g), D - Mine::at(g), x);
    }
  }
}

}  // namespace galley::cuda::attention
