// Activations: one pass over the operands, at their bandwidth.
#include "cpu/number.hpp"
#include "ops/activation/functions.hpp"

namespace galley::cpu::activation_op {
namespace {

using namespace sdk;

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
                   add(kernel<backward<cpu::relu_slope>, cpu::all_numbers>("relu_grad.cpu", "relu_grad")) &&
                   add(kernel<forward<cpu::relu2>, cpu::all_numbers>("relu2.cpu", "relu2")) &&
                   add(kernel<backward<cpu::relu2_slope>, cpu::all_numbers>("relu2_grad.cpu", "relu2_grad")) &&
                   add(kernel<forward<cpu::quick_gelu>, cpu::all_numbers>("quick_gelu.cpu", "quick_gelu")) &&
                   add(kernel<backward<cpu::quick_gelu_slope>, cpu::all_numbers>("quick_gelu_grad.cpu", "quick_gelu_grad")) &&
                   add(kernel<forward<cpu::sigmoid>, cpu::all_numbers>("sigmoid.cpu", "sigmoid")) &&
                   add(kernel<backward<cpu::sigmoid_slope>, cpu::all_numbers>("sigmoid_grad.cpu", "sigmoid_grad")) &&
                   add(kernel<forward<cpu::tanh>, cpu::all_numbers>("tanh.cpu", "tanh")) &&
                   add(kernel<backward<cpu::tanh_slope>, cpu::all_numbers>("tanh_grad.cpu", "tanh_grad"));

}  // namespace
}  // namespace galley::cpu::activation_op
