// mean_rows: x (B, S, C), mask (B, S) I32, y (B, C). A block takes up to 256 columns of a sequence, eight a lane; teams of lanes take its
// positions in turn, and are added in order. mean_rows_grad: a block counts a sequence's mask, and writes some of its positions. Both are
// bound by memory, where there are enough sequences to keep the GPU busy.
#include "cuda/packed.hpp"
#include "galley/cuda/reduce.hpp"

namespace galley::cuda::mean_rows_op {
namespace {

constexpr int kThreads = 256, kPositions = 64;  // of a block of the gradient

/// How many of S entries are above 0. All threads of the block call it.
__device__ inline int counted(const int32_t* mask, int64_t S) {
  int positions = 0;
  for (int64_t s = threadIdx.x; s < S; s += kThreads) positions += mask[s] > 0;
  return block_sum<kThreads>(positions);
}

__global__ void __launch_bounds__(kThreads)
    mean_rows(Reader x, const int32_t* mask, Writer y, int64_t S, int64_t C, int64_t tiles, int lanes) {
  GALLEY_SHARED(float, of_thread, kThreads* kPack);
  const int thread = static_cast<int>(threadIdx.x), teams = kThreads / lanes;
  const int64_t b = blockIdx.x / tiles, c = (blockIdx.x % tiles * lanes + thread % lanes) * kPack;
  const int n = pack_at(c, C);
  const int positions = counted(mask + b * S, S);
  float sum[kPack] = {};
  for (int64_t s = thread / lanes; s < S; s += teams) {
    if (mask[b * S + s] <= 0 || n == 0) continue;
    float from[kPack];
    x.load((b * S + s) * C + c, n, from);
#pragma unroll
    for (int i = 0; i < kPack; ++i) sum[i] += from[i];
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) of_thread[i * kThreads + thread] = sum[i];
  __syncthreads();
  if (thread >= lanes || n == 0) return;
  const float share = positions ? 1.0f / static_cast<float>(positions) : 0.0f;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    for (int team = 1; team < teams; ++team) sum[i] += of_thread[i * kThreads + team * lanes + thread];
    sum[i] *= share;
  }
  y.store(b * C + c, n, sum);
}

void forward(const Node& n, void*, galley_queue* queue) {
  const int64_t B = n.in(0).shape[0], S = n.in(0).shape[1], C = n.in(0).shape[2];
  const int lanes = lanes_of(C);
  const int64_t tiles = blocks_of(C, int64_t{kPack} * lanes);
  launch(mean_rows, {B * tiles, kThreads}, queue, Reader(n, 0), n.read<int32_t>(1), Writer(n, 0), S, C, tiles, lanes);
}

__global__ void __launch_bounds__(kThreads) spread_rows(Reader dy, const int32_t* mask, Writer dx, int64_t S, int64_t C, int64_t pieces) {
  const int64_t b = blockIdx.x / pieces, first = blockIdx.x % pieces * kPositions, end = first + kPositions < S ? first + kPositions : S;
  const int positions = counted(mask + b * S, S);
  const float share = positions ? 1.0f / static_cast<float>(positions) : 0.0f;
  const int64_t packs = (C + kPack - 1) / kPack;
  for (int64_t k = threadIdx.x; k < (end - first) * packs; k += kThreads) {
    const int64_t s = first + k / packs, c = k % packs * kPack;
    const bool counts = mask[b * S + s] > 0;
    if (!counts && dx.adds) continue;
    const int n = pack_at(c, C);
    float numbers[kPack] = {};
    if (counts) dy.load(b * C + c, n, numbers);
#pragma unroll
    for (int i = 0; i < kPack; ++i) numbers[i] *= share;
    dx.store((b * S + s) * C + c, n, numbers);
  }
}

void backward(const Node& n, void*, galley_queue* queue) {
  const int64_t B = n.in(0).shape[0], S = n.in(1).shape[1], C = n.in(0).shape[1], pieces = blocks_of(S, kPositions);
  launch(spread_rows, {B * pieces, kThreads}, queue, Reader(n, 0), n.read<int32_t>(1), Writer(n, 0), S, C, pieces);
}

const bool added = add(kernel<forward>("mean_rows.cuda", "mean_rows")) && add(kernel<backward>("mean_rows_grad.cuda", "mean_rows_grad"));

}  // namespace
}  // namespace galley::cuda::mean_rows_op
