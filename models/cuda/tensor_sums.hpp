// One sum for each of many tensors, in two launches whatever their number: every block of threads sums a part of a tensor, of a size that
// is fixed; then a block for each tensor adds its parts. The order of a tensor's sum follows from its size alone, so that a tensor has the
// same sum alone and among others. Bound by reading the tensors once.
//
//   struct Squares {                                  a tensor, as it stands in the table
//     using Sum = double;
//     static constexpr int64_t kPart = 16384;         elements that a block of threads sums
//     static void check(const Node&);                 throws where it does not take a node
//     explicit Squares(const Node&);
//     int64_t count;                                  elements
//     __device__ Sum part(int64_t first) const;       what this thread adds of the part that begins at `first`
//     __device__ void finish(Sum sum) const;          called by one thread
//   };
//   add(nodes_kernel<TensorSums<Squares>>("sum_squares.cuda", "sum_squares"))
#pragma once

#include <algorithm>

#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"
#include "galley/cuda/segments.hpp"

namespace galley::cuda {

inline constexpr int kSumThreads = 256;

namespace detail {

template <class Tensor>
__global__ void __launch_bounds__(kSumThreads) sum_parts(GALLEY_SEGMENTS(Tensor) tensors, typename Tensor::Sum* sums) {
  const auto found = tensors.find(blockIdx.x);
  const auto sum = block_sum<kSumThreads>(found.entry.part(found.block * Tensor::kPart));
  if (threadIdx.x == 0) sums[tensors.before + blockIdx.x] = sum;
}

template <class Tensor>
__global__ void __launch_bounds__(kSumThreads) sum_tensors(GALLEY_SEGMENTS(Tensor) tensors, const typename Tensor::Sum* sums) {
  const int index = static_cast<int>(blockIdx.x);
  const int64_t begin = tensors.before + tensors.begin(index), end = tensors.before + tensors.begin(index + 1);
  typename Tensor::Sum sum = 0;
#pragma unroll 4
  for (int64_t i = begin + threadIdx.x; i < end; i += kSumThreads) sum += sums[i];
  sum = block_sum<kSumThreads>(sum);
  if (threadIdx.x == 0) tensors.rows[index].entry.finish(sum);
}

}  // namespace detail

template <class Tensor>
class TensorSums {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan& plan) {
    for (const Node& n : nodes) {
      Tensor::check(n);
      plan.workspace_bytes += parts(Tensor(n)) * static_cast<int64_t>(sizeof(typename Tensor::Sum));
    }
  }
  TensorSums(const Nodes& nodes, const galley_kernel_setup& setup) : sums_(static_cast<typename Tensor::Sum*>(setup.workspace)) {
    for (const Node& n : nodes) tensors_.add(Tensor(n), parts(Tensor(n)));
  }
  void run(galley_queue* queue) const {
    tensors_.launch(detail::sum_parts<Tensor>, kSumThreads, queue, sums_);
    tensors_.launch_entries(detail::sum_tensors<Tensor>, kSumThreads, queue, sums_);
  }

 private:
  // At least one: a tensor without elements has a sum, too.
  static int64_t parts(const Tensor& tensor) { return std::max<int64_t>(blocks_of(tensor.count, Tensor::kPart), 1); }

  Segments<Tensor> tensors_;
  typename Tensor::Sum* sums_;
};

}  // namespace galley::cuda
