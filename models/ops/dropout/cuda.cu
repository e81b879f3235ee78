// dropout: y = x / (1 − p) where a draw keeps the element, else 0; x (…, C). A warp for each row, 256 columns at a time: each lane makes
// two blocks of Philox for its eight columns, which costs about as much as their way through memory in 16 bit. The draws are the CPU's: see
// op.cpp.
#include <cmath>

#include "galley/cuda/elementwise.hpp"
#include "galley/cuda/reduce.hpp"
#include "ops/check.hpp"

namespace galley::cuda::dropout_op {
namespace {

constexpr int kRows = 8;  // of a block of threads

struct Unchanged {
  __device__ float operator()(float x) const { return x; }
};

/// Which draws are a node's, and what they do.
struct Mask {
  uint64_t name;
  int64_t first_row, length;
  uint32_t threshold;  // draws of 24 bits below it drop
  float factor;
};

__global__ void __launch_bounds__(kRows* kWarpSize)
    drop(Reader x, const int64_t* random, Writer y, int64_t rows, int64_t columns, Mask mask) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarpSize;
  if (r >= rows) return;
  const int64_t row = mask.first_row + r, of_window = mask.length ? row / mask.length : 0;
  const int64_t sequence = random[2] + of_window, position = row - of_window * mask.length;
  const uint64_t key = galley_random_key(random, mask.name);
  for (int64_t c = static_cast<int64_t>(threadIdx.x) % kWarpSize * kPack; c < columns; c += kWarpSize * kPack) {
    const int n = pack_at(c, columns);
    float pack[kPack];
    x.load(r * columns + c, n, pack);
#pragma unroll
    for (int half = 0; half < kPack; half += 4) {
      const galley_philox_block draws = galley_random_block(key, sequence, position, (c + half) / 4);
#pragma unroll
      for (int i = 0; i < 4; ++i) pack[half + i] = draws.word[i] >> 8 >= mask.threshold ? pack[half + i] * mask.factor : 0.0f;
    }
    y.store(r * columns + c, n, pack);
  }
}

void dropout(const Node& n, void*, galley_queue* queue) {
  const double p = n.training() ? n.f("p", 0.5) : 0;
  // galley_uniform(word) ≥ p, in integers.
  const auto threshold = static_cast<uint32_t>(std::ceil(p * 16777216.0));
  if (threshold == 0) return map(n, queue, Unchanged());
  const Mask mask = {n.stream(), n.view()->first_row, models::row_length(n), threshold, p < 1 ? static_cast<float>(1 / (1 - p)) : 0.0f};
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  launch(drop, {blocks_of(R, kRows), kRows * kWarpSize}, queue, Reader(n, 0), n.read<int64_t>(1), Writer(n, 0), R, C, mask);
}

const bool added = add(kernel<dropout>("dropout.cuda", "dropout"));

}  // namespace
}  // namespace galley::cuda::dropout_op
