// Soft caps: one pass over the operands.
#include "cpu/number.hpp"
#include "ops/activation/functions.hpp"

namespace galley::cpu::softcap_op {
namespace {

using namespace sdk;

void softcap(const Node& n, void*) {
  const float cap = static_cast<float>(n.f("cap", 0));
  cpu::map(n, [cap](float x) { return cap * cpu::tanh(x / cap); });
}
void softcap_grad(const Node& n, void*) {
  const float cap = static_cast<float>(n.f("cap", 0));
  cpu::map(n, [cap](float dy, float x) { return dy * cpu::tanh_slope(x / cap); });
}

const bool added = add(kernel<softcap, cpu::all_numbers>("softcap.cpu", "softcap")) &&
                   add(kernel<softcap_grad, cpu::all_numbers>("softcap_grad.cpu", "softcap_grad"));

}  // namespace
}  // namespace galley::cpu::softcap_op
