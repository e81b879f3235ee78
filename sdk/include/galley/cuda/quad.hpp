// Four numbers a thread, the next four in the next thread: for kernels whose traffic is F32, as that of optimizers is. Each instruction of
// a warp then moves 512 bytes in a row; with eight F32 numbers a thread (number.hpp) it would touch every sector of 32 bytes twice.
//
//   for (int64_t at = begin + threadIdx.x * kQuad; at < end; at += kThreads * kQuad) {
//     const int n = quad_at(at, end);        4, or fewer in the last quad
//     float x[kQuad];
//     load_quad(p + at, n, x);               one instruction where the address allows it
#pragma once

#include "galley/cuda/number.hpp"

namespace galley::cuda {

inline constexpr int kQuad = 4;

/// How many of the four numbers from index `at` on lie before `end`.
__device__ inline int quad_at(int64_t at, int64_t end) { return end - at < kQuad ? static_cast<int>(end - at) : kQuad; }

/// n ≤ 4 numbers in F32, BF16 or F16; zeros after them.
template <class T>
__device__ inline void load_quad(const T* from, int n, float (&to)[kQuad]) {
  load_numbers(from, n, to);
}
template <class T>
__device__ inline void store_quad(T* to, int n, const float (&from)[kQuad]) {
  store_numbers(to, n, from);
}
__device__ inline void load_quad(const void* data, uint32_t dtype, int64_t at, int n, float (&to)[kQuad]) {
  load_numbers(data, dtype, at, n, to);
}
__device__ inline void store_quad(void* data, uint32_t dtype, int64_t at, int n, const float (&from)[kQuad]) {
  store_numbers(data, dtype, at, n, from);
}

}  // namespace galley::cuda
