// Numbers in F32, BF16 or F16, as kernels read and write them: eight at a time, in F32 registers. An operand's dtype is known when the
// kernel is launched, not when it is compiled: one switch for each eight numbers costs nothing beside their way through memory, and spares
// a kernel for each combination of dtypes.
#pragma once

#include <cstring>

#include "galley/cpp/half.hpp"
#include "galley/cuda/platform.hpp"

#if GALLEY_CUDA_EMULATED
#include "galley/emulated/number.hpp"
#else
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace galley::cuda {

using sdk::Bf16;
using sdk::F16;

/// Numbers that a thread reads or writes at a time.
inline constexpr int kPack = 8;

// ---- One number -----------------------------------------------------------------------------------------------------------------------

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(Bf16 x) { return __uint_as_float(static_cast<unsigned>(x.bits) << 16); }
#if !GALLEY_CUDA_EMULATED
__device__ inline float widen(F16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline void narrow(float x, Bf16& y) { y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x)); }
__device__ inline void narrow(float x, F16& y) { y.bits = __half_as_ushort(__float2half_rn(x)); }
#endif
__device__ inline void narrow(float x, float& y) { y = x; }

/// x as it is after a way through `dtype`.
__device__ inline float rounded(float x, uint32_t dtype) {
  if (dtype == GALLEY_BF16) {
    Bf16 y;
    narrow(x, y);
    return widen(y);
  }
  if (dtype == GALLEY_F16) {
    F16 y;
    narrow(x, y);
    return widen(y);
  }
  return x;
}

// ---- Vectors --------------------------------------------------------------------------------------------------------------------------

/// N values that move in one instruction: N · sizeof(T) is 4, 8 or 16 bytes, and so is the alignment of their address.
template <class T, int N>
struct alignas(sizeof(T) * N) Vector {
  T at[N];
};
#if !GALLEY_CUDA_EMULATED
template <class T, int N>
__device__ inline Vector<T, N> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}
template <class T, int N>
__device__ inline void store_vector(T* to, const Vector<T, N>& v) {
  *reinterpret_cast<Vector<T, N>*>(to) = v;
}
/// The same into global memory, in one instruction also where the compiler cannot tell which memory it is: it splits the others.
template <class T, int N>
__device__ inline void store_global(T* to, const Vector<T, N>& v) {
  const uint32_t* const words = reinterpret_cast<const uint32_t*>(v.at);
  if constexpr (sizeof v == 16) __stwb(reinterpret_cast<uint4*>(to), uint4{words[0], words[1], words[2], words[3]});
  else if constexpr (sizeof v == 8) __stwb(reinterpret_cast<uint2*>(to), uint2{words[0], words[1]});
  else store_vector(to, v);
}
#endif

// ---- Operands -------------------------------------------------------------------------------------------------------------------------

/// How many of the eight numbers from index `at` on lie before `end`.
__host__ __device__ inline int pack_at(int64_t at, int64_t end) {
  return end - at >= kPack ? kPack : end > at ? static_cast<int>(end - at) : 0;
}

/// n ≤ N numbers, zeros after them: in vectors of up to 16 bytes where there are N and the address allows it.
template <int N, class T>
__device__ inline void load_numbers(const T* from, int n, float (&to)[N]) {
  constexpr int most = 16 / static_cast<int>(sizeof(T)), width = N < most ? N : most;
  if (n == N && reinterpret_cast<uintptr_t>(from) % (width * sizeof(T)) == 0) {
#pragma unroll
    for (int k = 0; k < N; k += width) {
      const Vector<T, width> v = load_vector<T, width>(from + k);
#pragma unroll
      for (int i = 0; i < width; ++i) to[k + i] = widen(v.at[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) to[i] = i < n ? widen(from[i]) : 0.0f;
  }
}
/// Into global memory.
template <int N, class T>
__device__ inline void store_numbers(T* to, int n, const float (&from)[N]) {
  constexpr int most = 16 / static_cast<int>(sizeof(T)), width = N < most ? N : most;
  if (n == N && reinterpret_cast<uintptr_t>(to) % (width * sizeof(T)) == 0) {
#pragma unroll
    for (int k = 0; k < N; k += width) {
      Vector<T, width> v;
#pragma unroll
      for (int i = 0; i < width; ++i) narrow(from[k + i], v.at[i]);
      store_global(to + k, v);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < n) narrow(from[i], to[i]);
  }
}
/// The same for a dtype that is known when the kernel runs; from index `at` of `data` on.
template <int N>
__device__ inline void load_numbers(const void* data, uint32_t dtype, int64_t at, int n, float (&to)[N]) {
  if (dtype == GALLEY_BF16) load_numbers(static_cast<const Bf16*>(data) + at, n, to);
  else if (dtype == GALLEY_F16) load_numbers(static_cast<const F16*>(data) + at, n, to);
  else load_numbers(static_cast<const float*>(data) + at, n, to);
}
template <int N>
__device__ inline void store_numbers(void* data, uint32_t dtype, int64_t at, int n, const float (&from)[N]) {
  if (dtype == GALLEY_BF16) store_numbers(static_cast<Bf16*>(data) + at, n, from);
  else if (dtype == GALLEY_F16) store_numbers(static_cast<F16*>(data) + at, n, from);
  else store_numbers(static_cast<float*>(data) + at, n, from);
}

inline bool is_number(uint32_t dtype) { return dtype == GALLEY_F32 || dtype == GALLEY_BF16 || dtype == GALLEY_F16; }

/// An operand of numbers that a kernel reads. It may be absent. Passed to kernels by value.
struct Reader {
  const void* data = nullptr;
  uint32_t dtype = GALLEY_F32;

  Reader() = default;
  Reader(const sdk::Node& node, uint32_t input) {
    if (!node.has(input)) return;
    data = node.in(input).data;
    dtype = node.in(input).dtype;
  }
  __host__ __device__ bool there() const { return data != nullptr; }
  __device__ float at(int64_t i) const {
    if (dtype == GALLEY_BF16) return widen(static_cast<const Bf16*>(data)[i]);
    if (dtype == GALLEY_F16) return widen(static_cast<const F16*>(data)[i]);
    return static_cast<const float*>(data)[i];
  }
  /// n ≤ 8 numbers from index `at` on; zeros after them.
  __device__ void load(int64_t at, int n, float (&to)[kPack]) const { load_numbers(data, dtype, at, n, to); }
};

/// An operand of numbers that a kernel writes, or adds to. It may be absent. What is added is rounded once, after the sum.
struct Writer {
  void* data = nullptr;
  uint32_t dtype = GALLEY_F32;
  uint32_t adds = 0;

  Writer() = default;
  Writer(const sdk::Node& node, uint32_t output) {
    if (!node.has_out(output)) return;
    data = node.out(output).data;
    dtype = node.out(output).dtype;
    adds = node.accumulates(output);
  }
  __host__ __device__ bool there() const { return data != nullptr; }
  __device__ void put(int64_t i, float x) const {
    if (adds) x = held(i) + x;
    if (dtype == GALLEY_BF16) narrow(x, static_cast<Bf16*>(data)[i]);
    else if (dtype == GALLEY_F16) narrow(x, static_cast<F16*>(data)[i]);
    else static_cast<float*>(data)[i] = x;
  }
  /// n ≤ 8 numbers from index `at` on.
  __device__ void store(int64_t at, int n, const float (&from)[kPack]) const {
    float sum[kPack];
    if (adds) {
      load(at, n, sum);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum[i] += from[i];
    } else {
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum[i] = from[i];
    }
    store_numbers(data, dtype, at, n, sum);
  }
  /// What is there now.
  __device__ void load(int64_t at, int n, float (&to)[kPack]) const {
    Reader reader;
    reader.data = data;
    reader.dtype = dtype;
    reader.load(at, n, to);
  }

 private:
  __device__ float held(int64_t i) const {
    Reader reader;
    reader.data = data;
    reader.dtype = dtype;
    return reader.at(i);
  }
};

/// The operands that are there are integers, or numbers that Reader and Writer take.
inline bool all_numbers(const sdk::Node& node) {
  const auto fits = [](const galley_operand* t) { return !t || is_number(t->dtype) || t->dtype == GALLEY_I32 || t->dtype == GALLEY_I64; };
  const galley_node_view& v = *node.view();
  for (uint32_t i = 0; i < v.n_inputs; ++i)
    if (!fits(v.inputs[i])) return false;
  for (uint32_t i = 0; i < v.n_outputs; ++i)
    if (!fits(v.outputs[i])) return false;
  return true;
}

}  // namespace galley::cuda
