// Activations: one pass over the operands, at their bandwidth; an exponential costs a quarter of a nanosecond an element.
#include "cpu/number.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

constexpr float root_2_over_pi = 0.797884561f, cubic = 0.044715f, root_half = 0.707106781f, density = 0.398942280f;  // √(2/π), √½, 1/√(2π)

// (1 + tanh u) / 2 = σ(2u): one exponential, and no cancellation on the left.
inline float half_tanh(float x) { return cpu::sigmoid(2 * root_2_over_pi * cpu::fma(cubic * x * x, x, x)); }
inline float gelu_tanh(float x) { return x * half_tanh(x); }
inline float gelu_tanh_slope(float x) {
  const float s = half_tanh(x);
  const float inner = 2 * root_2_over_pi * cpu::fma(3 * cubic * x, x, 1.0f);
  return cpu::fma(x * s * (1.0f - s), inner, s);
}
inline float gelu_erf(float x) { return 0.5f * x * (1.0f + cpu::erf(x * root_half)); }
inline float gelu_erf_slope(float x) { return cpu::fma(x * density, cpu::exp(-0.5f * x * x), 0.5f * (1.0f + cpu::erf(x * root_half))); }
inline float relu(float x) { return x > 0.0f ? x : 0.0f; }
inline float relu_slope(float x) { return x > 0.0f ? 1.0f : 0.0f; }

using Function = float (*)(float);
template <Function f>
void forward(const Node& n, void*) {
  cpu::map(n, [](float x) { return f(x); });
}
template <Function slope>
void backward(const Node& n, void*) {
  cpu::map(n, [](float dy, float x) { return dy * slope(x); });
}

void gelu(const Node& n, void* workspace) { (n.s("approximate", "none") == "tanh" ? forward<gelu_tanh> : forward<gelu_erf>)(n, workspace); }
void gelu_grad(const Node& n, void* workspace) {
  (n.s("approximate", "none") == "tanh" ? backward<gelu_tanh_slope> : backward<gelu_erf_slope>)(n, workspace);
}

const bool added = add(kernel<gelu, cpu::all_numbers>("gelu.cpu", "gelu")) &&
                   add(kernel<gelu_grad, cpu::all_numbers>("gelu_grad.cpu", "gelu_grad")) &&
                   add(kernel<forward<cpu::silu>, cpu::all_numbers>("silu.cpu", "silu")) &&
                   add(kernel<backward<cpu::silu_slope>, cpu::all_numbers>("silu_grad.cpu", "silu_grad")) &&
                   add(kernel<forward<relu>, cpu::all_numbers>("relu.cpu", "relu")) &&
                   add(kernel<backward<relu_slope>, cpu::all_numbers>("relu_grad.cpu", "relu_grad"));

}  // namespace
