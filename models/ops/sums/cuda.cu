// sum_squares: y = Σ x² of each tensor, F64 (1), by TensorSums: 16,384 elements a block of threads, 8 at a time; bound by reading x once.
// block_squares, sum_blocks: the same in two ops, for a gradient of which each process has a part; a block of threads for 16,384 elements,
// and one for the blocks.
// norm_finish: √(Σ sums) / scale, one block over a table of the sums' addresses; bound by its launch.
//
// F64 is slow on most GPUs, also the conversion to it. So a thread adds the squares of 32 numbers in F32, where it has room for them (they
// lose less than 2⁻²¹ of their sum), and these sums in F64.
#include <cmath>
#include <vector>

#include "cuda/tensor_sums.hpp"

namespace galley::cuda::sums_op {
namespace {

/// The squares of 8 numbers, in pairs.
__device__ float squares(const float (&x)[kPack]) {
  float pairs[kPack / 2];
#pragma unroll
  for (int i = 0; i < kPack / 2; ++i) pairs[i] = fmaf(x[2 * i], x[2 * i], x[2 * i + 1] * x[2 * i + 1]);
  return (pairs[0] + pairs[1]) + (pairs[2] + pairs[3]);
}

/// The squares of 32 numbers.
constexpr int kPacks = 4;
__device__ double squares(const float (&x)[kPacks][kPack]) {
  const float sum = (squares(x[0]) + squares(x[1])) + (squares(x[2]) + squares(x[3]));
  // Not so small that squares which F32 has no room for count, and neither an infinity nor NaN.
  if (sum >= 0x1p-100f && sum <= 0x1p120f) return static_cast<double>(sum);
  double exact = 0;
#pragma unroll
  for (int k = 0; k < kPacks; ++k)
#pragma unroll
    for (int i = 0; i < kPack; ++i) exact = fma(static_cast<double>(x[k][i]), static_cast<double>(x[k][i]), exact);
  return exact;
}

struct Squares {
  using Sum = double;
  static constexpr int kRounds = 2, kStride = kSumThreads * kPack;
  static constexpr int64_t kPart = kRounds * kPacks * kStride;
  static void check(const Node& n) {
    if (!is_number(n.in(0).dtype) || n.out(0).dtype != GALLEY_F64) unsupported("dtypes or shapes");
  }
  explicit Squares(const Node& n) : x(n, 0), count(galley::cuda::count(n.in(0))), y(n.write<double>(0)) {}

  __device__ double part(int64_t first) const {
    if (x.dtype == GALLEY_BF16) return of(static_cast<const Bf16*>(x.data) + first, count - first);
    if (x.dtype == GALLEY_F16) return of(static_cast<const F16*>(x.data) + first, count - first);
    return of(static_cast<const float*>(x.data) + first, count - first);
  }
  __device__ void finish(double sum) const { *y = sum; }

  template <class T>
  __device__ static double of(const T* at, int64_t left) {
    const int mine = static_cast<int>(threadIdx.x) * kPack;
    return left >= kPart ? of<true>(at + mine, kPart) : of<false>(at + mine, left - mine);
  }
  template <bool whole, class T>
  __device__ static double of(const T* at, int64_t left) {
    double sum = 0;
    float packs[kPacks][kPack];
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int k = 0; k < kPacks; ++k) {
        const int first = (round * kPacks + k) * kStride;
        const int64_t rest = left - first;
        load_numbers(at + first, whole ? kPack : pack_at(0, rest), packs[k]);
      }
      sum += squares(packs);
    }
    return sum;
  }

  Reader x;
  int64_t count;
  double* y;
};

// ---- The same of a part, and of the blocks of all parts ------------------------------------------------------------------------------

__global__ void __launch_bounds__(kSumThreads) sum_block(Squares x) {
  const double sum = block_sum<kSumThreads>(x.part(static_cast<int64_t>(blockIdx.x) * Squares::kPart));
  if (threadIdx.x == 0) x.y[blockIdx.x] = sum;
}

class BlockSquares {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan&) { Squares::check(n); }
  BlockSquares(const Node& n, const galley_kernel_setup&) : x_(n), blocks_(blocks_of(x_.count, Squares::kPart)) {}
  void run(galley_queue* queue) const {
    if (blocks_) launch(sum_block, {blocks_, kSumThreads}, queue, x_);
  }

 private:
  Squares x_;
  int64_t blocks_;
};

/// In the order of detail::sum_tensors.
__global__ void __launch_bounds__(kSumThreads) add_blocks(const double* blocks, int64_t count, double* y) {
  double sum = 0;
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < count; i += kSumThreads) sum += blocks[i];
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) *y = sum;
}

class SumBlocks {
 public:
  static void query(const Node&, const galley_target&, galley_kernel_plan&) {}
  SumBlocks(const Node& n, const galley_kernel_setup&)
      : x_(n.read<double>(0)), count_(galley::cuda::count(n.in(0))), y_(n.write<double>(0)) {}
  void run(galley_queue* queue) const { launch(add_blocks, {1, kSumThreads}, queue, x_, count_, y_); }

 private:
  const double* x_;
  int64_t count_;
  double* y_;
};

// ---- norm_finish --------------------------------------------------------------------------------------------------------------------

__global__ void __launch_bounds__(kSumThreads)
    finish_norm(const double* const* sums, int count, const float* scale, float* norm, int32_t* found_inf) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kSumThreads) sum += *sums[i];
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x != 0) return;
  *norm = static_cast<float>(sqrt(sum) / static_cast<double>(*scale));
  *found_inf = !std::isfinite(sum);
}

class NormFinish {
 public:
  static void query(const Node& n, const galley_target&, galley_kernel_plan& plan) {
    plan.constants_bytes = static_cast<int64_t>((n.view()->n_inputs - 1) * sizeof(double*));
  }
  NormFinish(const Node& n, const galley_kernel_setup& setup)
      : sums_(static_cast<const double* const*>(setup.constants)),
        count_(static_cast<int>(n.view()->n_inputs) - 1),
        scale_(n.read<float>(0)),
        norm_(n.write<float>(0)),
        found_inf_(n.write<int32_t>(1)) {
    std::vector<const double*> sums;
    for (int i = 0; i < count_; ++i) sums.push_back(n.read<double>(static_cast<uint32_t>(i) + 1));
    if (count_) upload(setup, setup.constants, sums.data(), sums.size() * sizeof(double*));
  }
  void run(galley_queue* queue) const { launch(finish_norm, {1, kSumThreads}, queue, sums_, count_, scale_, norm_, found_inf_); }

 private:
  const double* const* sums_;
  int count_;
  const float* scale_;
  float* norm_;
  int32_t* found_inf_;
};

const bool added = add(nodes_kernel<TensorSums<Squares>>("sum_squares.cuda", "sum_squares")) &&
                   add(kernel_of<BlockSquares>("block_squares.cuda", "block_squares")) &&
                   add(kernel_of<SumBlocks>("sum_blocks.cuda", "sum_blocks")) &&
                   add(kernel_of<NormFinish>("norm_finish.cuda", "norm_finish"));

}  // namespace
}  // namespace galley::cuda::sums_op
