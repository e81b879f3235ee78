// Sums and maxima over the lanes of a warp and the threads of a block, in a fixed tree: the same numbers give the same bits. Every lane or
// thread gets the result.
#pragma once

#include "galley/cuda/platform.hpp"

namespace galley::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFu;

struct Add {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

/// Over the 32 lanes of a warp, all of which call it. `width` (a power of two): over each group of so many lanes.
template <int width = kWarpSize, class T, class Combine>
__device__ inline T warp_reduce(T x, Combine combine) {
#pragma unroll
  for (int other = width / 2; other > 0; other /= 2) x = combine(x, __shfl_xor_sync(kAllLanes, x, other));
  return x;
}
template <int width = kWarpSize, class T>
__device__ inline T warp_sum(T x) {
  return warp_reduce<width>(x, Add());
}
template <int width = kWarpSize, class T>
__device__ inline T warp_max(T x) {
  return warp_reduce<width>(x, Max());
}

/// Over the `threads` threads of a block (a multiple of 32, at most 1024; they lie along x), all of which call it. `neutral`: 0 for a sum.
/// It may be called again at once.
template <int threads, class T, class Combine>
__device__ inline T block_reduce(T x, T neutral, Combine combine) {
  static_assert(threads % kWarpSize == 0 && threads <= 1024, "whole warps");
  x = warp_reduce(x, combine);
  if constexpr (threads == kWarpSize) return x;
  constexpr int warps = threads / kWarpSize;
  GALLEY_SHARED(T, of_warp, warps);
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  if (lane == 0) of_warp[warp] = x;
  __syncthreads();
  x = warp_reduce(lane < warps ? of_warp[lane] : neutral, combine);
  __syncthreads();
  return x;
}
template <int threads, class T>
__device__ inline T block_sum(T x) {
  return block_reduce<threads>(x, T(0), Add());
}

}  // namespace galley::cuda
