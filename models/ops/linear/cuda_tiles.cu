// Products without cuBLASLt: C (m, n) = or += α · A (m, k) · B (k, n) + bias, each stored either way, in F32, BF16 or F16 each. For what
// cuBLASLt does not take, such as F32 into BF16, and for targets that do not have it.
//
// A block of 128 threads makes 64 × 64 numbers of C, a thread 4 × 8 of them. In steps of 16 of k, tiles of A and B lie in shared memory in
// F32, with k as their rows; while one step is multiplied, each thread has its 16 numbers of the next on their way. Bound by FMA: a step
// takes a thread 48 loads of four numbers from shared memory for 512 FMAs.
//
// Bits. A number of C is a sum of chains of 512 fused multiply-adds in the order of k, then the bias, then what C held. It does not depend
// on where it lies in C.
#include "ops/linear/cuda_products.hpp"

namespace galley::cuda {
namespace {

constexpr int kThreads = 128, kTile = 64, kDepth = 16;
constexpr int kRow = kTile + 4;       // of shared memory: rows begin in other banks, at multiples of 16 bytes
constexpr int kChain = 512 / kDepth;  // steps
constexpr int kRows = 4, kColumns = kPack;

struct Product {
  Reader a, b, bias;
  Writer c;
  int64_t m, n, k, tiles_across;
  float alpha;
};

/// A matrix (k, extent), or stored (extent, k): a thread's part of the tile from (k0, first) on.
template <bool stored_by_extent>
struct Part {
  float numbers[kPack];

  __device__ void fetch(const Reader& from, int64_t k, int64_t extent, int64_t k0, int64_t first, int thread) {
    if (stored_by_extent) {
      const int64_t row = first + thread % kTile, at = k0 + thread / kTile * kPack;
      from.load(row * k + at, row < extent ? inside(k - at) : 0, numbers);
    } else {
      const int64_t row = k0 + thread / (kTile / kPack), at = first + thread % (kTile / kPack) * kPack;
      from.load(row * extent + at, row < k ? inside(extent - at) : 0, numbers);
    }
  }
  __device__ void put(float* tile, int thread) const {
    if (stored_by_extent) {
#pragma unroll
      for (int i = 0; i < kPack; ++i) tile[(thread / kTile * kPack + i) * kRow + thread % kTile] = numbers[i];
    } else {
      float* const to = tile + thread / (kTile / kPack) * kRow + thread % (kTile / kPack) * kPack;
#pragma unroll
      for (int i = 0; i < kPack; i += 4)
        store_vector(to + i, Vector<float, 4>{{numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]}});
    }
  }

 private:
  static __device__ int inside(int64_t left) { return left >= kPack ? kPack : left > 0 ? static_cast<int>(left) : 0; }
};

template <bool a_transposed, bool b_transposed>
__global__ void __launch_bounds__(kThreads) multiply(Product p) {
  GALLEY_SHARED(float, tiles, 4 * kDepth * kRow);  // of A and of B, twice
  const int thread = static_cast<int>(threadIdx.x), row = thread / (kTile / kColumns) * kRows,
            column = thread % (kTile / kColumns) * kColumns;
  const int64_t block = blockIdx.x, first_row = block / p.tiles_across * kTile, first_column = block % p.tiles_across * kTile;
  const int64_t steps = (p.k + kDepth - 1) / kDepth;
  float sums[kRows][kColumns] = {}, chains[kRows][kColumns] = {};
  Part<!a_transposed> a;
  Part<b_transposed> b;
  a.fetch(p.a, p.k, p.m, 0, first_row, thread);
  b.fetch(p.b, p.k, p.n, 0, first_column, thread);
  for (int64_t step = 0; step < steps; ++step) {
    float* const tile_a = tiles + (step % 2) * (2 * kDepth * kRow);
    float* const tile_b = tile_a + kDepth * kRow;
    a.put(tile_a, thread);
    b.put(tile_b, thread);
    __syncthreads();
    if (step + 1 < steps) {
      a.fetch(p.a, p.k, p.m, (step + 1) * kDepth, first_row, thread);
      b.fetch(p.b, p.k, p.n, (step + 1) * kDepth, first_column, thread);
    }
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      const auto x = load_vector<float, 4>(tile_a + k * kRow + row);
      const auto y = load_vector<float, 4>(tile_b + k * kRow + column), z = load_vector<float, 4>(tile_b + k * kRow + column + 4);
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          chains[i][j] = fmaf(x.at[i], y.at[j], chains[i][j]);
          chains[i][j + 4] = fmaf(x.at[i], z.at[j], chains[i][j + 4]);
        }
    }
    if ((step + 1) % kChain == 0 || step + 1 == steps) {
#pragma unroll
      for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
          sums[i][j] += chains[i][j];
          chains[i][j] = 0.0f;
        }
    }
  }
  const int64_t at = first_column + column;
  if (at >= p.n) return;
  const int count = p.n - at < kColumns ? static_cast<int>(p.n - at) : kColumns;
  float bias[kColumns] = {};
  if (p.bias.there()) p.bias.load(at, count, bias);
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    const int64_t r = first_row + row + i;
    if (r >= p.m) return;
#pragma unroll
    for (int j = 0; j < kColumns; ++j) sums[i][j] = fmaf(p.alpha, sums[i][j], bias[j]);
    p.c.store(r * p.n + at, count, sums[i]);
  }
}

Reader reader(const void* data, uint32_t dtype) {
  Reader out;
  out.data = data;
  out.dtype = dtype;
  return out;
}

}  // namespace

void multiply_by_tiles(const Matmul& m, galley_queue* queue) {
  Product p = {
      reader(m.a, m.dtype), reader(m.b, m.dtype), reader(m.bias, m.bias_dtype), {}, m.m, m.n, m.k, (m.n + kTile - 1) / kTile, m.alpha};
  p.c.data = m.c;
  p.c.dtype = m.c_dtype;
  p.c.adds = m.adds;
  const Grid grid = {(m.m + kTile - 1) / kTile * p.tiles_across, kThreads};
  // None of the three products has both transposed.
  const auto kernel = m.a_transposed ? multiply<true, false> : m.b_transposed ? multiply<false, true> : multiply<false, false>;
  launch(kernel, grid, queue, p);
}

}  // namespace galley::cuda
