// Four numbers a thread, the next four in the next thread: for kernels whose traffic is F32, as that of optimizers is. Each instruction of a
// warp then moves 512 bytes in a row; with eight F32 numbers a thread (number.hpp) it would touch every sector of 32 bytes twice.
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

/// n ≤ 4 numbers in F32, BF16 or F16; zeros behind them.
template <class T>
__device__ inline void load_quad(const T* from, int n, float (&to)[kQuad]) {
  if (n == kQuad && reinterpret_cast<uintptr_t>(from) % (kQuad * sizeof(T)) == 0) {
    const Vector<T, kQuad> v = load_vector<T, kQuad>(from);
#pragma unroll
    for (int i = 0; i < kQuad; ++i) to[i] = widen(v.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i) to[i] = i < n ? widen(from[i]) : 0.0f;
  }
}
template <class T>
__device__ inline void store_quad(T* to, int n, const float (&from)[kQuad]) {
  if (n == kQuad && reinterpret_cast<uintptr_t>(to) % (kQuad * sizeof(T)) == 0) {
    Vector<T, kQuad> v;
#pragma unroll
    for (int i = 0; i < kQuad; ++i) narrow(from[i], v.at[i]);
    store_vector<T, kQuad>(to, v);
  } else {
#pragma unroll
    for (int i = 0; i < kQuad; ++i)
      if (i < n) narrow(from[i], to[i]);
  }
}

/// The same for a dtype that is known when the kernel runs; from index `at` of `data` on.
__device__ inline void load_quad(const void* data, uint32_t dtype, int64_t at, int n, float (&to)[kQuad]) {
  if (dtype == GALLEY_BF16) load_quad(static_cast<const Bf16*>(data) + at, n, to);
  else if (dtype == GALLEY_F16) load_quad(static_cast<const F16*>(data) + at, n, to);
  else load_quad(static_cast<const float*>(data) + at, n, to);
}
__device__ inline void store_quad(void* data, uint32_t dtype, int64_t at, int n, const float (&from)[kQuad]) {
  if (dtype == GALLEY_BF16) store_quad(static_cast<Bf16*>(data) + at, n, from);
  else if (dtype == GALLEY_F16) store_quad(static_cast<F16*>(data) + at, n, from);
  else store_quad(static_cast<float*>(data) + at, n, from);
}

}  // namespace galley::cuda
