// Activations and their slopes, number by number, as kernels of their own and those that fuse them compute them. Structs, to
// pass to kernels. An exponential and a division are their cost: quotients are __fdividef's (2 units in the last place), since IEEE's cost
// more than the operands' way through memory.
#pragma once

#include <cmath>

#include "galley/cuda/platform.hpp"

namespace galley::cuda {

/// 1 / (1 + e^−x).
__device__ inline float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

namespace detail {

inline constexpr float kRoot2OverPi = 0.797884561f, kCubic = 0.044715f, kRootHalf = 0.707106781f,
                       kDensity = 0.398942280f;  // √(2/π), √½, 1/√(2π)

/// (1 + tanh u) / 2 = σ(2u): one exponential, and no cancellation on the left.
__device__ inline float half_tanh(float x) { return sigmoid(2 * kRoot2OverPi * fmaf(kCubic * x * x, x, x)); }

}  // namespace detail

struct GeluTanh {
  __device__ float operator()(float x) const { return x * detail::half_tanh(x); }
  __device__ static float slope(float x) {
    const float s = detail::half_tanh(x);
    const float inner = 2 * detail::kRoot2OverPi * fmaf(3 * detail::kCubic * x, x, 1.0f);
    return fmaf(x * s * (1.0f - s), inner, s);
  }
};
struct GeluErf {
  __device__ float operator()(float x) const { return 0.5f * x * (1.0f + erff(x * detail::kRootHalf)); }
  __device__ static float slope(float x) {
    return fmaf(x * detail::kDensity, expf(-0.5f * x * x), 0.5f * (1.0f + erff(x * detail::kRootHalf)));
  }
};
struct Silu {
  __device__ float operator()(float x) const { return __fdividef(x, 1.0f + expf(-x)); }
  __device__ static float slope(float x) {
    const float s = sigmoid(x);
    return fmaf(x * s, 1.0f - s, s);
  }
};
struct Relu {
  __device__ float operator()(float x) const { return x > 0.0f ? x : 0.0f; }
  __device__ static float slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
};
struct Relu2 {
  __device__ float operator()(float x) const { return x > 0.0f ? x * x : 0.0f; }
  __device__ static float slope(float x) { return x > 0.0f ? 2.0f * x : 0.0f; }
};
struct QuickGelu {
  static constexpr float kQuick = 1.702f;
  __device__ float operator()(float x) const { return __fdividef(x, 1.0f + expf(-kQuick * x)); }
  __device__ static float slope(float x) {
    const float s = sigmoid(kQuick * x);
    return fmaf(kQuick * x * s, 1.0f - s, s);
  }
};
struct Sigmoid {
  __device__ float operator()(float x) const { return sigmoid(x); }
  /// σ(x)·σ(−x) by e^−|x|, so that nothing cancels far from 0.
  __device__ static float slope(float x) {
    const float e = expf(-fabsf(x)), sum = 1.0f + e;
    return __fdividef(e, sum * sum);
  }
};
struct Tanh {
  __device__ float operator()(float x) const { return tanhf(x); }
  /// 1 − tanh²x.
  __device__ static float slope(float x) { return 4.0f * Sigmoid::slope(2.0f * x); }
};

/// A gate's activation: its value alone, and with its slope.
template <class Activation>
struct Gated {
  __device__ float operator()(float gate, float up) const { return Activation()(gate) * up; }
  __device__ static void both(float x, float& value, float& slope) {
    value = Activation()(x);
    slope = Activation::slope(x);
  }
};
template <>
__device__ inline void Gated<Silu>::both(float x, float& value, float& slope) {
  const float s = sigmoid(x);
  value = x * s;
  slope = fmaf(value, 1.0f - s, s);
}
template <>
__device__ inline void Gated<GeluTanh>::both(float x, float& value, float& slope) {
  const float s = detail::half_tanh(x);
  value = x * s;
  slope = fmaf(value * (1.0f - s), 2 * detail::kRoot2OverPi * fmaf(3 * detail::kCubic * x, x, 1.0f), s);
}

/// dx from dy and x.
template <class Activation>
struct Gradient {
  __device__ float operator()(float dy, float x) const { return dy * Activation::slope(x); }
};

}  // namespace galley::cuda
