// Activations and their slopes, number by number. An exponential costs a quarter of a nanosecond.
#pragma once

#include <string_view>

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

// What a gate may be passed through, by the name that the attribute "activation" gives it: its value alone, and with its slope.
struct SiluGate {
  static float value(float x) { return silu(x); }
  static void both(float x, float& value, float& slope) {
    const float s = sigmoid(x);
    value = x * s;
    slope = fma(value, 1.0f - s, s);
  }
};
struct GeluGate {
  static float value(float x) { return gelu_erf(x); }
  static void both(float x, float& value, float& slope) {
    const float part = 0.5f * (1.0f + erf(x * root_half));
    value = x * part;
    slope = fma(x * density, exp(-0.5f * x * x), part);
  }
};
struct GeluTanhGate {
  static float value(float x) { return gelu_tanh(x); }
  static void both(float x, float& value, float& slope) {
    const float s = half_tanh(x);
    value = x * s;
    slope = fma(value * (1.0f - s), 2 * root_2_over_pi * fma(3 * cubic * x, x, 1.0f), s);
  }
};
struct ReluGate {
  static float value(float x) { return relu(x); }
  static void both(float x, float& value, float& slope) {
    value = relu(x);
    slope = relu_slope(x);
  }
};
struct SigmoidGate {
  static float value(float x) { return sigmoid(x); }
  static void both(float x, float& value, float& slope) {
    value = sigmoid(x);
    slope = sigmoid_slope(x);
  }
};
template <class Gate>
inline float gated(float gate, float up) {
  return Gate::value(gate) * up;
}
/// body(Gate) for the gate of a node of "swiglu" or "swiglu_grad", whose shape rule has checked the name.
template <class Body>
inline auto by_gate(const sdk::Node& node, const Body& body) {
  const char* const name = galley_attr_string(node.view(), "activation", "silu");
  const std::string_view gate = name;
  if (gate == "gelu") return body(GeluGate());
  if (gate == "gelu_tanh") return body(GeluTanhGate());
  if (gate == "relu") return body(ReluGate());
  if (gate == "sigmoid") return body(SigmoidGate());
  return body(SiluGate());
}

}  // namespace galley::cpu
