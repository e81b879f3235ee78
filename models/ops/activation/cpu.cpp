// Activations: one pass over the operands, at their bandwidth.
#include "cpu/number.hpp"
#include "ops/activation/functions.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

using Function = float (*)(float);
template <Function f>
void forward(const Node& n, void*) {
  cpu::map(n, [](float x) { return f(x); });
}
template <Function slope>
void backward(const Node& n, void*) {
  cpu::map(n, [](float dy, float x) { return dy * slope(x); });
}

void gelu(const Node& n, void* workspace) {
  (n.s("approximate", "none") == "tanh" ? forward<cpu::gelu_tanh> : forward<cpu::gelu_erf>)(n, workspace);
}
void gelu_grad(const Node& n, void* workspace) {
  (n.s("approximate", "none") == "tanh" ? backward<cpu::gelu_tanh_slope> : backward<cpu::gelu_erf_slope>)(n, workspace);
}

const bool added = add(kernel<gelu, cpu::all_numbers>("gelu.cpu", "gelu")) &&
                   add(kernel<gelu_grad, cpu::all_numbers>("gelu_grad.cpu", "gelu_grad")) &&
                   add(kernel<forward<cpu::silu>, cpu::all_numbers>("silu.cpu", "silu")) &&
                   add(kernel<backward<cpu::silu_slope>, cpu::all_numbers>("silu_grad.cpu", "silu_grad")) &&
                   add(kernel<forward<cpu::relu>, cpu::all_numbers>("relu.cpu", "relu")) &&
                   add(kernel<backward<cpu::relu_slope>, cpu::all_numbers>("relu_grad.cpu", "relu_grad"));

}  // namespace
