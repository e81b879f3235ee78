// BF16 and F16 (galley/cpp/half.hpp) for many numbers at once.
#pragma once

#include "galley/cpp/half.hpp"

namespace galley::cpu {

using sdk::Bf16;
using sdk::F16;
using sdk::from_float;
using sdk::to_float;

template <class T>
inline void widen(const T* from, int64_t n, float* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}
template <class T>
inline void narrow(const float* from, int64_t n, T* __restrict to) {
  for (int64_t i = 0; i < n; ++i) from_float(from[i], to[i]);
}

}  // namespace galley::cpu
