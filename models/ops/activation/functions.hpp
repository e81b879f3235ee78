// Activations and their slopes, number by number. An exponential costs a quarter of a nanosecond.
#pragma once

#include "cpu/vector.hpp"

namespace galley::cpu {

inline constexpr float root_2_over_pi = 0.797884561f, cubic = 0.044715f, root_half = 0.707106781f,
                       density = 0.398942280f;  // √(2/π), √½, 1/√(2π)

// (1 + tanh u) / 2 = σ(2u): one exponential, and no cancellation on the left.
inline float half_tanh(float x) { return sigmoid(2 * root_2_over_pi * fma(cubic * x * x, x, x)); }
inline float gelu_tanh(float x) { return x * half_tanh(x); }
inline float gelu_tanh_slope(float x) {
  const float s = half_tanh(x);
  const float inner = 2 * root_2_over_pi * fma(3 * cubic * x, x, 1.0f);
  return fma(x * s * (1.0f - s), inner, s);
}
inline float gelu_erf(float x) { return 0.5f * x * (1.0f + erf(x * root_half)); }
inline float gelu_erf_slope(float x) { return fma(x * density, exp(-0.5f * x * x), 0.5f * (1.0f + erf(x * root_half))); }
inline float relu(float x) { return x > 0.0f ? x : 0.0f; }
inline float relu_slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }
inline float relu2(float x) { return x > 0.0f ? x * x : 0.0f; }
inline float relu2_slope(float x) { return x > 0.0f ? 2.0f * x : 0.0f; }
inline constexpr float quick = 1.702f;
inline float quick_gelu(float x) { return x / (1.0f + exp(-quick * x)); }
inline float quick_gelu_slope(float x) {
  const float s = sigmoid(quick * x);
  return fma(quick * x * s, 1.0f - s, s);
}
// σ(x)·σ(−x) and 1 − tanh²x by e^−|x|, so that nothing cancels far from 0.
inline float sigmoid_slope(float x) {
  const float e = exp(-absolute(x)), sum = 1.0f + e;
  return e / (sum * sum);
}
inline float tanh_slope(float x) { return 4.0f * sigmoid_slope(2.0f * x); }
inline float swiglu(float gate, float up) { return silu(gate) * up; }

}  // namespace galley::cpu
