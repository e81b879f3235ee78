// add and scale: one pass, at the bandwidth of the operands.
#include "cpu/number.hpp"

namespace galley::cpu::add_op {
namespace {

using namespace sdk;

void add_tensors(const Node& n, void*) {
  const float alpha = static_cast<float>(n.f("alpha", 1));
  if (alpha == 1.0f) cpu::map(n, [](float a, float b) { return a + b; });
  else cpu::map(n, [=](float a, float b) { return cpu::fma(alpha, b, a); });
}

void scale(const Node& n, void*) {
  const float alpha = static_cast<float>(n.f("alpha", 1));
  cpu::map(n, [=](float x) { return alpha * x; });
}

const bool added =
    add(kernel<add_tensors, cpu::all_numbers>("add.cpu", "add")) && add(kernel<scale, cpu::all_numbers>("scale.cpu", "scale"));

}  // namespace
}  // namespace galley::cpu::add_op
