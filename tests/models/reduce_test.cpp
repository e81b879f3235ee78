// Reductions over a block, called twice in a row: what the second call writes must not reach a thread that still reads the first one's.
#include <gtest/gtest.h>

#include <vector>

#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"

namespace galley::cuda {
namespace {

constexpr int kThreadsOfBlock = 128;

__global__ void add_up(const float* x, const float* y, float* sums) {
  const int thread = static_cast<int>(threadIdx.x);
  const float first = block_sum<kThreadsOfBlock>(x[thread]), second = block_sum<kThreadsOfBlock>(y[thread]);
  sums[2 * thread] = first;
  sums[2 * thread + 1] = second;
}

TEST(Reduce, TwiceInARow) {
  std::vector<float> x(kThreadsOfBlock), y(kThreadsOfBlock), sums(2 * kThreadsOfBlock);
  for (int i = 0; i < kThreadsOfBlock; ++i) x[static_cast<size_t>(i)] = static_cast<float>(i), y[static_cast<size_t>(i)] = 1000;
  launch(add_up, {1, kThreadsOfBlock}, nullptr, x.data(), y.data(), sums.data());
  for (size_t i = 0; i < kThreadsOfBlock; ++i) {
    EXPECT_EQ(sums[2 * i], kThreadsOfBlock * (kThreadsOfBlock - 1) / 2) << "thread " << i;
    EXPECT_EQ(sums[2 * i + 1], 1000 * kThreadsOfBlock) << "thread " << i;
  }
}

}  // namespace
}  // namespace galley::cuda
