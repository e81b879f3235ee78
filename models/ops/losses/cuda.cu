// Losses of one number at a time: x and what it is compared with (R, C), F32 and I32 or F32. A warp sums a row, each lane its own columns
// in F64; a second launch adds the rows in a fixed order. The gradients: eight numbers a thread, in place where they take over x. Bound by
// the bandwidth of their operands. A label that is neither 0 nor 1, nor negative, makes NaN, since a kernel cannot refuse it.
#include <cmath>

#include "cuda/activation.hpp"
#include "galley/cuda/elementwise.hpp"
#include "galley/cuda/reduce.hpp"

namespace galley::cuda::losses_op {
namespace {

struct Binary {
  using Other = int32_t;
  __device__ static float loss(float x, int32_t label) {
    if (label > 1) return NAN;
    return label < 0 ? 0.0f : fmaxf(x, 0.0f) - x * static_cast<float>(label) + log1pf(expf(-fabsf(x)));
  }
  __device__ static float slope(float x, int32_t label) {
    return label > 1 ? NAN : label < 0 ? 0.0f : sigmoid(x) - static_cast<float>(label);
  }
};
struct Squared {
  using Other = float;
  __device__ static float loss(float x, float t) { return t != t ? 0.0f : (x - t) * (x - t); }
  __device__ static float slope(float x, float t) { return t != t ? 0.0f : 2.0f * (x - t); }
};

constexpr int kThreads = 256, kRows = kThreads / kWarpSize, kSumThreads = 1024;

template <class Loss>
__global__ void __launch_bounds__(kThreads)
    losses_of_rows(const float* x, const typename Loss::Other* y, int64_t R, int64_t C, double* losses) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarpSize;
  if (r >= R) return;
  double sum = 0;
  for (int64_t c = threadIdx.x % kWarpSize; c < C; c += kWarpSize) sum += static_cast<double>(Loss::loss(x[r * C + c], y[r * C + c]));
  sum = warp_sum(sum);
  if (threadIdx.x % kWarpSize == 0) losses[r] = sum;
}

__global__ void __launch_bounds__(kSumThreads) sum_losses(const double* losses, int64_t rows, double* loss, bool adds) {
  double sum = 0;
#pragma unroll 4
  for (int64_t r = threadIdx.x; r < rows; r += kSumThreads) sum += losses[r];
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) *loss = adds ? *loss + sum : sum;
}

template <class Loss>
void forward(const Node& n, void* workspace, galley_queue* queue) {
  auto* losses = static_cast<double*>(workspace);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  launch(losses_of_rows<Loss>, {blocks_of(R, kRows), kThreads}, queue, n.read<float>(0), n.read<typename Loss::Other>(1), R, C, losses);
  launch(sum_losses, {1, kSumThreads}, queue, losses, R, n.write<double>(0), n.accumulates(0));
}
int64_t workspace(const Node& n, const galley_target&) { return rows(n.in(0)) * static_cast<int64_t>(sizeof(double)); }
bool supports(const Node& n) { return n.in(0).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F64; }

template <class Loss>
__global__ void __launch_bounds__(kMapThreads)
    gradients(const float* x, const typename Loss::Other* y, const float* seed_at, Writer d, int64_t count) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * kPack;
  if (at >= count) return;
  const int n = pack_at(at, count);
  const float seed = *seed_at;
  float numbers[kPack];
  load_numbers(x + at, n, numbers);
#pragma unroll
  for (int i = 0; i < kPack; ++i)
    if (i < n) numbers[i] = Loss::slope(numbers[i], y[at + i]) * seed;
  d.store(at, n, numbers);
}

template <class Loss>
void backward(const Node& n, void*, galley_queue* queue) {
  const int64_t size = count(n.in(0));
  launch(gradients<Loss>, map_grid(size), queue, n.read<float>(0), n.read<typename Loss::Other>(1), n.read<float>(2), Writer(n, 0), size);
}

const bool added = add(kernel<forward<Binary>, supports, workspace>("binary_cross_entropy.cuda", "binary_cross_entropy")) &&
                   add(kernel<backward<Binary>>("binary_cross_entropy_grad.cuda", "binary_cross_entropy_grad")) &&
                   add(kernel<forward<Squared>, supports, workspace>("squared_error.cuda", "squared_error")) &&
                   add(kernel<backward<Squared>>("squared_error_grad.cuda", "squared_error_grad"));

}  // namespace
}  // namespace galley::cuda::losses_op
