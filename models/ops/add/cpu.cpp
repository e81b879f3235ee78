// add and scale: one pass, at the bandwidth of the operands.
#include "cpu/vector.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void add_tensors(const Node& n, void*) {
  const float *a = n.read<float>(0), *b = n.read<float>(1), alpha = static_cast<float>(n.f("alpha", 1));
  if (alpha == 1.0f) cpu::map(n, [=](int64_t i) { return a[i] + b[i]; });
  else cpu::map(n, [=](int64_t i) { return cpu::fma(alpha, b[i], a[i]); });
}

void scale(const Node& n, void*) {
  const float *x = n.read<float>(0), alpha = static_cast<float>(n.f("alpha", 1));
  cpu::map(n, [=](int64_t i) { return alpha * x[i]; });
}

const bool added = add(kernel<add_tensors, cpu::all_f32>("add.cpu", "add")) && add(kernel<scale, cpu::all_f32>("scale.cpu", "scale"));

}  // namespace
