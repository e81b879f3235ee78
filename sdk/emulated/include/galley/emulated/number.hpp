// Numbers of 16 bit and vectors of the emulated GPU: what galley/cuda/number.hpp gives kernels, where nvcc has intrinsics and wide
// instructions. Included by it.
#pragma once

#include <cstdint>
#include <cstring>

#include "galley/cpp/half.hpp"
#include "galley/emulated/worker.hpp"

namespace galley::cuda {

inline float widen(sdk::F16 x) { return sdk::to_float(x); }
inline void narrow(float x, sdk::Bf16& y) { sdk::from_float(x, y); }
inline void narrow(float x, sdk::F16& y) { sdk::from_float(x, y); }

template <class T, int N>
struct Vector;
// By memcpy: compilers move an aligned access ahead of the test that it is one.
template <class T, int N>
inline Vector<T, N> load_vector(const T* from) {
  if (reinterpret_cast<uintptr_t>(from) % (sizeof(T) * N))
    emulated::Worker::here().fail("a vector is read at an address that is not aligned");
  Vector<T, N> v;
  std::memcpy(v.at, from, sizeof v.at);
  return v;
}
template <class T, int N>
inline void store_vector(T* to, const Vector<T, N>& v) {
  if (reinterpret_cast<uintptr_t>(to) % (sizeof(T) * N))
    emulated::Worker::here().fail("a vector is written at an address that is not aligned");
  std::memcpy(to, v.at, sizeof v.at);
}
template <class T, int N>
inline void store_global(T* to, const Vector<T, N>& v) {
  store_vector(to, v);
}

}  // namespace galley::cuda
