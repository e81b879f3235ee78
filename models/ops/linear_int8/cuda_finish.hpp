// What sums of codes become: y = sum · scale of x · unit of W, what outliers' columns add, and the bias. A block of 256 threads takes
// 64 × 128 numbers of y, a thread eight at a time.
//
// Outliers' columns are multiplied on tensor cores, 32 of them at a time, which lie in shared memory in 16 bit. There the codes of W are
// exact, and so is x: in F32 it is three numbers in BF16. What is added up in F32 are exact products, which the unit of W then multiplies.
// While one step is multiplied, each thread has its numbers of the next on their way. A warp makes 32 × 32 numbers.
//
// Bits. A number of y does not depend on where it lies: its columns of outliers are added up in their order, 16 at a time.
#pragma once

#include <type_traits>

#include "galley/cuda/mma.hpp"
#include "ops/linear_int8/cuda_rows.hpp"

namespace galley::cuda::linear_int8_op {

/// Codes of W, and how they lie: (N, K), or (K, N).
struct Weight {
  explicit Weight(const Node& n) : transposed(n.i("transposed", 0) != 0) {
    const int8_rows::Coded coded(n.in(1));
    codes = coded.codes;
    scales = coded.scales;
  }
  const int8_t* codes;
  const float* scales;
  bool transposed;
};

/// Passed to kernels by value.
struct Finish {
  Finish(const Node& n, const Rows& rows)
      : shape(n), w(n), x(rows.x()), outliers(rows.outliers()), scales(rows.scales()), bias(n, 2), y(n, 0) {}
  Shape shape;
  Weight w;
  Reader x;
  Outliers outliers;
  const float* scales;
  Reader bias;
  Writer y;

  /// Makes n ≤ 8 numbers of row r, from column j on. `added`: of outliers' columns, in units of W.
  __device__ void make(int64_t r, int64_t j, int n, const int (&sums)[kPack], const float (&added)[kPack]) const {
    float units[kPack], numbers[kPack];
    load_numbers(w.scales + j, n, units);
    const float scale = scales[r];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      units[i] = int8_rows::unit(units[i]);
      numbers[i] = fmaf(added[i], units[i], static_cast<float>(sums[i]) * (scale * units[i]));
    }
    if (bias.there()) {
      float held[kPack];
      bias.load(j, n, held);
#pragma unroll
      for (int i = 0; i < kPack; ++i) numbers[i] += held[i];
    }
    y.store(r * shape.N + j, n, numbers);
  }
};

inline constexpr int kFinishThreads = 256, kFinishRows = 64, kFinishColumns = 128, kDepth = 32;
inline constexpr int kDeep = kDepth + 8;  // of shared memory, in numbers: eight rows lie in eight times 16 bytes of other banks
inline constexpr int kMadeRow = kFinishColumns + 4;
inline constexpr int kXEach = kFinishRows * kDepth / kFinishThreads, kWEach = kFinishColumns * kDepth / kFinishThreads;

/// n ≤ 8 sums.
__device__ inline void load_sums(const int* from, int n, int (&to)[kPack]) {
  if (n == kPack && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
#pragma unroll
    for (int k = 0; k < kPack; k += 4) {
      const auto four = load_vector<int, 4>(from + k);
#pragma unroll
      for (int i = 0; i < 4; ++i) to[k + i] = four.at[i];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i) to[i] = i < n ? from[i] : 0;
  }
}

/// A thread's part of a step: of a column of outliers, x in 8 rows, and codes of W in 16; or of W's column n, 16 codes where W is stored
/// (K, N). Zeros where there is nothing. X: the dtype of x.
template <class X, bool transposed>
struct OutlierPart {
  X numbers[kXEach];
  int8_t codes[kWEach];

  __device__ void fetch(const Finish& f, int count, int c0, int64_t first_row, int64_t last_row, int64_t first_column, int thread) {
    const int lane = thread % kWarpSize, warp = thread / kWarpSize;
    const int64_t k = c0 + lane < count ? f.outliers.columns[c0 + lane] : -1;
    const int64_t r = first_row + warp * kXEach;
    const X* x = static_cast<const X*>(f.x.data) + r * f.shape.K + k;
    const int rows = k < 0 ? 0 : last_row - r < kXEach ? static_cast<int>(last_row - r) : kXEach;
#pragma unroll
    for (int i = 0; i < kXEach; ++i, x += f.shape.K) numbers[i] = i < rows ? *x : X{};
    if constexpr (transposed) {
      const int64_t n = first_column + thread % kFinishColumns;
      const int c = c0 + thread / kFinishColumns * kWEach, columns = n < f.shape.N ? count - c : 0;
#pragma unroll
      for (int i = 0; i < kWEach; ++i) codes[i] = i < columns ? f.w.codes[f.outliers.columns[c + i] * f.shape.N + n] : int8_t{0};
    } else {
      const int64_t n = first_column + warp * kWEach;
      const int8_t* w = f.w.codes + n * f.shape.K + k;
      const int columns = k < 0 ? 0 : f.shape.N - n < kWEach ? static_cast<int>(f.shape.N - n) : kWEach;
#pragma unroll
      for (int i = 0; i < kWEach; ++i, w += f.shape.K) codes[i] = i < columns ? *w : int8_t{0};
    }
  }

  /// x as `parts` numbers in T, of which each is what the ones before it have left.
  template <class T, int parts>
  __device__ void put(uint16_t* tile_x, uint16_t* tile_w, int thread) const {
    const int lane = thread % kWarpSize, warp = thread / kWarpSize;
#pragma unroll
    for (int i = 0; i < kXEach; ++i) {
      float left = widen(numbers[i]);
#pragma unroll
      for (int part = 0; part < parts; ++part) {
        T number;
        narrow(left, number);
        tile_x[(part * kFinishRows + warp * kXEach + i) * kDeep + lane] = number.bits;
        left = part + 1 < parts && fabsf(widen(number)) < INFINITY ? left - widen(number) : 0.0f;
      }
    }
    uint16_t* const to =
        transposed ? tile_w + thread % kFinishColumns * kDeep + thread / kFinishColumns * kWEach : tile_w + warp * kWEach * kDeep + lane;
#pragma unroll
    for (int i = 0; i < kWEach; ++i) {
      T code;
      narrow(static_cast<float>(codes[i]), code);
      to[i * (transposed ? 1 : kDeep)] = code.bits;
    }
  }
};

/// Makes a block's products of outliers' columns, in units of W: rows of kMadeRow numbers in `made`, shared memory that holds the tiles, too.
template <class T, int parts, bool transposed>
__device__ void multiply_outliers(const Finish& finish, int count, int64_t first_row, int64_t last_row, int64_t column, float* made) {
  constexpr int kTall = 2, kWide = 4;  // products of 16 × 8 that a warp makes
  uint16_t *const tile_x = reinterpret_cast<uint16_t*>(made), *const tile_w = tile_x + parts * kFinishRows * kDeep;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize, warp = thread / kWarpSize;
  constexpr int across = kFinishColumns / (8 * kWide);
  const int row_of_warp = warp / across * (16 * kTall), column_of_warp = warp % across * (8 * kWide);
  float d[kTall][kWide][4] = {};
  OutlierPart<std::conditional_t<parts == 1, T, float>, transposed> mine;
  mine.fetch(finish, count, 0, first_row, last_row, column, thread);
  for (int c0 = 0; c0 < count; c0 += kDepth) {
    __syncthreads();
    mine.template put<T, parts>(tile_x, tile_w, thread);
    __syncthreads();
    if (c0 + kDepth < count) mine.fetch(finish, count, c0 + kDepth, first_row, last_row, column, thread);
#pragma unroll
    for (int k = 0; k < kDepth; k += 16) {
      uint32_t b[kWide][2];
#pragma unroll
      for (int n = 0; n < kWide; n += 2) {
        uint32_t both[4];
        load_matrices(both, tile_w + (column_of_warp + n * 8 + lane / 16 * 8 + lane % 8) * kDeep + k + lane / 8 % 2 * 8);
#pragma unroll
        for (int i = 0; i < 4; ++i) b[n + i / 2][i % 2] = both[i];
      }
#pragma unroll
      for (int part = 0; part < parts; ++part)
#pragma unroll
        for (int m = 0; m < kTall; ++m) {
          uint32_t a[4];
          load_matrices(a, tile_x + (part * kFinishRows + row_of_warp + m * 16 + lane % 16) * kDeep + k + lane / 16 * 8);
#pragma unroll
          for (int n = 0; n < kWide; ++n) mma<T>(d[m][n], a, b[n]);
        }
    }
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < kTall; ++m)
#pragma unroll
    for (int n = 0; n < kWide; ++n)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_vector(made + (row_of_warp + m * 16 + lane / 4 + half * 8) * kMadeRow + column_of_warp + n * 8 + lane % 4 * 2,
                     Vector<float, 2>{{d[m][n][2 * half], d[m][n][2 * half + 1]}});
  __syncthreads();
}

/// Rows [first, first + rows) of y, of sums that begin at `from`.
template <class T, int parts, bool transposed>
__global__ void __launch_bounds__(kFinishThreads, 2)
    finish_tiles(const int* from, Finish finish, int64_t first, int64_t rows, int64_t tiles_across) {
  GALLEY_SHARED(float, made, kFinishRows* kMadeRow);
  static_assert((parts * kFinishRows + kFinishColumns) * kDeep * sizeof(uint16_t) <= kFinishRows * kMadeRow * sizeof(float));
  const int thread = static_cast<int>(threadIdx.x), count = *finish.outliers.count;
  const int64_t N = finish.shape.N, row = blockIdx.x / tiles_across * kFinishRows, column = blockIdx.x % tiles_across * kFinishColumns;
  if (count > 0) multiply_outliers<T, parts, transposed>(finish, count, first + row, first + rows, column, made);
  constexpr int packs = kFinishColumns / kPack;
  for (int i = thread; i < kFinishRows * packs; i += kFinishThreads) {
    const int64_t r = row + i / packs, j = column + i % packs * kPack;
    if (r >= rows || j >= N) continue;
    int sums[kPack];
    float added[kPack] = {};
    load_sums(from + r * N + j, pack_at(j, N), sums);
    if (count > 0) load_numbers(made + i / packs * kMadeRow + i % packs * kPack, kPack, added);
    finish.make(first + r, j, pack_at(j, N), sums, added);
  }
}

/// Makes rows [first, first + rows) of y.
template <bool transposed>
void finish_rows(const Finish& finish, const int* sums, int64_t first, int64_t rows, galley_queue* queue) {
  const int64_t across = blocks_of(finish.shape.N, kFinishColumns);
  const auto kernel = finish.x.dtype == GALLEY_BF16  ? finish_tiles<Bf16, 1, transposed>
                      : finish.x.dtype == GALLEY_F16 ? finish_tiles<F16, 1, transposed>
                                                     : finish_tiles<Bf16, 3, transposed>;
  launch(kernel, {blocks_of(rows, kFinishRows) * across, kFinishThreads}, queue, sums, finish, first, rows, across);
}

}  // namespace galley::cuda::linear_int8_op
