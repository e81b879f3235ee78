// linear_int8 on CUDA, of a weight that is stored in another way than "int8-rows": x̂ in F32 (cuda_rows.hpp), and its product with W in
// F32. A block of 256 threads makes 64 × 64 numbers of y, a thread 4 × 4 of them, in steps of 16 of k that lie in shared memory. No
// strategy of the project stores weights so beside this op; it is here because one may.
//
// Bits. Each sum is one chain of fused multiply-adds in the order of k.
#include "ops/linear_int8/cuda_rows.hpp"

namespace galley::cuda::linear_int8_numbers {
namespace {

using linear_int8_op::Room, linear_int8_op::Rows, linear_int8_op::Shape;

constexpr int kThreads = 256, kTile = 64, kStep = 16, kMine = 4, kRow = kTile + 4;

__global__ void __launch_bounds__(kThreads, 3)
    multiply_numbers(const float* x, Reader w, int transposed, Reader bias, Writer y, Shape shape, int64_t tiles_across) {
  GALLEY_SHARED(float, tile_x, kStep* kRow);
  GALLEY_SHARED(float, tile_w, kStep* kRow);
  const int thread = static_cast<int>(threadIdx.x), row = thread / (kTile / kMine) * kMine, column = thread % (kTile / kMine) * kMine;
  const int64_t block = blockIdx.x, first_row = block / tiles_across * kTile, first_column = block % tiles_across * kTile;
  float sums[kMine][kMine] = {};
  for (int64_t k0 = 0; k0 < shape.K; k0 += kStep) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile * kStep / kThreads; ++i) {
      const int at = i * kThreads + thread, along = at / kStep, step = at % kStep;
      const int64_t k = k0 + step, r = first_row + along, n = first_column + along;
      tile_x[step * kRow + along] = r < shape.R && k < shape.K ? x[r * shape.K + k] : 0.0f;
      tile_w[step * kRow + along] = n < shape.N && k < shape.K ? w.at(transposed ? k * shape.N + n : n * shape.K + k) : 0.0f;
    }
    __syncthreads();
    const int steps = shape.K - k0 < kStep ? static_cast<int>(shape.K - k0) : kStep;
    for (int step = 0; step < steps; ++step) {
      const auto p = load_vector<float, kMine>(tile_x + step * kRow + row), q = load_vector<float, kMine>(tile_w + step * kRow + column);
#pragma unroll
      for (int i = 0; i < kMine; ++i)
#pragma unroll
        for (int j = 0; j < kMine; ++j) sums[i][j] = fmaf(p.at[i], q.at[j], sums[i][j]);
    }
  }
#pragma unroll
  for (int i = 0; i < kMine; ++i)
#pragma unroll
    for (int j = 0; j < kMine; ++j) {
      const int64_t r = first_row + row + i, n = first_column + column + j;
      if (r < shape.R && n < shape.N) y.put(r * shape.N + n, bias.there() ? sums[i][j] + bias.at(n) : sums[i][j]);
    }
}

class Numbers {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan& plan) {
    if (!all_numbers(n)) unsupported("dtypes");
    Room room(nullptr);  // counts only
    const Rows rows(n, Rows::Makes::Numbers, room);
    plan.workspace_bytes = room.bytes();
    plan.priority = 0;
  }
  Numbers(const Node& n, const galley_kernel_setup& setup) : Numbers(n, Room(setup.workspace)) {}
  void run(galley_queue* queue) const {
    const int64_t across = blocks_of(shape_.N, kTile);
    rows_.run(queue);
    launch(multiply_numbers, {blocks_of(shape_.R, kTile) * across, kThreads}, queue, rows_.numbers(), w_, transposed_, bias_, y_, shape_,
           across);
  }

 private:
  Numbers(const Node& n, Room&& room)
      : rows_(n, Rows::Makes::Numbers, room), shape_(n), w_(n, 1), transposed_(n.i("transposed", 0) != 0), bias_(n, 2), y_(n, 0) {}
  Rows rows_;
  Shape shape_;
  Reader w_;
  int transposed_;
  Reader bias_;
  Writer y_;
};

const bool added = add(kernel_of<Numbers>("linear_int8.cuda_numbers", "linear_int8"));

}  // namespace
}  // namespace galley::cuda::linear_int8_numbers
