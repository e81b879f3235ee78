// cross_entropy: lse = log Σ exp and the loss of each row of logits (R, V), F32. A block of threads for each row (a warp up to 1024
// columns) reads it once: a thread keeps the largest number that it has seen and the sum of exponentials beside it, which shrinks when a
// larger one comes (Milakov, Gimelshein: "Online normalizer calculation for softmax", 2018, arXiv:1805.02867). A second launch adds the
// losses of the rows, F64, in a fixed order. Rows of 50,257 numbers lie at any multiple of 4 bytes: each load is of one number a thread,
// 128 bytes a warp, so that which thread takes a number depends on its column alone.
//
// cross_entropy_grad: dlogits = (exp(logits − lse) − onehot(label)) · seed, eight numbers a thread, aligned in the tensor and not in the
// row; in place where dlogits takes over logits.
//
// label_hits: a row is a hit if none of its numbers comes before the label's; hits are counted as losses are.
//
// All are bound by the bandwidth of their operands. A label that is no class makes NaN, since a kernel cannot refuse it.
#include <cfloat>
#include <cmath>

#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"

namespace galley::cuda::cross_entropy_op {
namespace {

// ---- cross_entropy ------------------------------------------------------------------------------------------------------------------

constexpr int kRowThreads = 512, kLossThreads = 1024, kLoads = 8;
constexpr int64_t kNarrow = 1024;  // columns that a warp takes
constexpr int kNarrowRows = 8;     // rows of a block then

/// What a thread has seen of a row: Σ exp(x) = sum · exp(largest).
struct Seen {
  float largest = -FLT_MAX, sum = 0;  // finite, so that −∞ beside it is exp(−∞)

  /// Numbers `threads` apart; without `whole`, those of `left` numbers.
  template <int threads, bool whole>
  __device__ void take(const float* x, int left) {
    float pack[kLoads], now = largest, of_pack = 0;
#pragma unroll
    for (int k = 0; k < kLoads; ++k) pack[k] = whole || k * threads < left ? x[k * threads] : -INFINITY;
#pragma unroll
    for (int k = 0; k < kLoads; ++k) now = fmaxf(now, pack[k]);  // NaN arrives by the sum
#pragma unroll
    for (int k = 0; k < kLoads; ++k) of_pack += expf(pack[k] - now);
    sum = fmaf(sum, expf(largest - now), of_pack);
    largest = now;
  }
};

template <int threads, int rows_of_block>
__global__ void __launch_bounds__(threads* rows_of_block)
    losses_of_rows(const float* logits, const int32_t* labels, int64_t rows, int V, double* losses, float* lse) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * rows_of_block + threadIdx.x / threads;
  if (r >= rows) return;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const int32_t label = labels[r];
  if (label < 0 && !lse) {
    if (thread == 0) losses[r] = 0;
    return;
  }
  const float* x = logits + r * V;
  Seen seen;
  int first = thread;
  for (; first + (kLoads - 1) * threads < V; first += kLoads * threads) seen.take<threads, true>(x + first, 0);
  if (first < V) seen.take<threads, false>(x + first, V - first);
  const float largest = block_reduce<threads>(seen.largest, -FLT_MAX, Max());  // of a warp where that takes the row
  const float sum = block_sum<threads>(seen.sum * expf(seen.largest - largest));
  if (thread != 0) return;
  const double total = static_cast<double>(largest) + log(static_cast<double>(sum));
  if (lse) lse[r] = static_cast<float>(total);
  losses[r] = label < 0 ? 0.0 : label < V ? total - static_cast<double>(x[label]) : static_cast<double>(NAN);
}

__global__ void __launch_bounds__(kLossThreads) sum_rows(const double* losses, int64_t rows, double* loss, bool adds) {
  double sum = 0;
#pragma unroll 4
  for (int64_t r = threadIdx.x; r < rows; r += kLossThreads) sum += losses[r];
  sum = block_sum<kLossThreads>(sum);
  if (threadIdx.x == 0) *loss = adds ? *loss + sum : sum;
}

void cross_entropy(const Node& n, void* workspace, galley_queue* queue) {
  auto* losses = static_cast<double*>(workspace);
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  const bool narrow = V <= kNarrow;
  launch(narrow ? losses_of_rows<kWarpSize, kNarrowRows> : losses_of_rows<kRowThreads, 1>,
         {narrow ? blocks_of(R, kNarrowRows) : R, narrow ? kWarpSize * kNarrowRows : kRowThreads}, queue, n.read<float>(0),
         n.read<int32_t>(1), R, static_cast<int>(V), losses, n.write<float>(1));
  launch(sum_rows, {1, kLossThreads}, queue, losses, R, n.write<double>(0), n.accumulates(0));
}
int64_t workspace(const Node& n, const galley_target&) { return rows(n.in(0)) * static_cast<int64_t>(sizeof(double)); }
bool supports(const Node& n) {
  return n.in(0).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F64 && (!n.has_out(1) || n.out(1).dtype == GALLEY_F32) &&
         columns(n.in(0)) < INT32_MAX - kLoads * kRowThreads;
}

// ---- label_hits ---------------------------------------------------------------------------------------------------------------------

template <int threads, int rows_of_block>
__global__ void __launch_bounds__(threads* rows_of_block)
    hits_of_rows(const float* logits, const int32_t* labels, int64_t rows, int V, double* hits) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * rows_of_block + threadIdx.x / threads;
  if (r >= rows) return;
  const int thread = static_cast<int>(threadIdx.x) % threads;
  const int32_t label = labels[r];
  if (label < 0 || label >= V) {
    if (thread == 0) hits[r] = label < 0 ? 0.0 : static_cast<double>(NAN);
    return;
  }
  const float *x = logits + r * V, own = x[label];
  float before = 0;
#pragma unroll 4
  for (int v = thread; v < V; v += threads) before = v == label || x[v] < own || (x[v] == own && v > label) ? before : 1.0f;
  before = block_reduce<threads>(before, 0.0f, Max());
  if (thread == 0) hits[r] = before == 0 ? 1.0 : 0.0;
}

void label_hits(const Node& n, void* workspace, galley_queue* queue) {
  auto* hits = static_cast<double*>(workspace);
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  const bool narrow = V <= kNarrow;
  launch(narrow ? hits_of_rows<kWarpSize, kNarrowRows> : hits_of_rows<kRowThreads, 1>,
         {narrow ? blocks_of(R, kNarrowRows) : R, narrow ? kWarpSize * kNarrowRows : kRowThreads}, queue, n.read<float>(0),
         n.read<int32_t>(1), R, static_cast<int>(V), hits);
  launch(sum_rows, {1, kLossThreads}, queue, hits, R, n.write<double>(0), n.accumulates(0));
}
bool counts(const Node& n) {
  return n.in(0).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F64 && columns(n.in(0)) < INT32_MAX - kRowThreads;
}

// ---- cross_entropy_grad -------------------------------------------------------------------------------------------------------------

constexpr int kGradThreads = 256, kGradPacks = 4;

__global__ void __launch_bounds__(kGradThreads)
    gradients(const float* logits, const int32_t* labels, const float* lse, const float* seed_at, Writer d, int64_t V) {
  const int64_t r = blockIdx.x, begin = r * V, end = begin + V;
  const int32_t label = labels[r];
  if (label < 0 && d.adds) return;
  const int64_t at_label = begin + label;
  const float total = label < 0 ? 0.0f : lse[r], seed = label < V ? *seed_at : NAN;
#pragma unroll 1
  for (int k = 0; k < kGradPacks; ++k) {
    const int64_t pack = static_cast<int64_t>(blockIdx.y * kGradPacks + k) * kGradThreads + threadIdx.x;
    const int64_t place = (begin / kPack + pack) * kPack, first = place < begin ? begin : place;
    const int64_t last = place + kPack < end ? place + kPack : end;
    if (first >= last) continue;
    const int size = static_cast<int>(last - first);
    float x[kPack];
    load_numbers(logits + first, size, x);
#pragma unroll
    for (int i = 0; i < kPack; ++i) x[i] = label < 0 ? 0.0f : (expf(x[i] - total) - (first + i == at_label ? 1.0f : 0.0f)) * seed;
    d.store(first, size, x);
  }
}

void cross_entropy_grad(const Node& n, void*, galley_queue* queue) {
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  // A row begins and ends within a pack.
  const int64_t blocks = blocks_of(V + 2 * (kPack - 1), int64_t{kGradPacks} * kGradThreads * kPack);
  launch(gradients, {{R, blocks}, kGradThreads}, queue, n.read<float>(0), n.read<int32_t>(1), n.read<float>(2), n.read<float>(3),
         Writer(n, 0), V);
}

const bool added = add(kernel<cross_entropy, supports, workspace>("cross_entropy.cuda", "cross_entropy")) &&
                   add(kernel<cross_entropy_grad>("cross_entropy_grad.cuda", "cross_entropy_grad")) &&
                   add(kernel<label_hits, counts, workspace>("label_hits.cuda", "label_hits"));

}  // namespace
}  // namespace galley::cuda::cross_entropy_op
