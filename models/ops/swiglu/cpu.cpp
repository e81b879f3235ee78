// SwiGLU: one pass over three operands forward, five backward. Each element is read before either gradient is written, so both may take
// over an input.
#include "cpu/vector.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void swiglu(const Node& n, void*) {
  cpu::map(n, [gate = n.read<float>(0), up = n.read<float>(1)](int64_t i) { return cpu::silu(gate[i]) * up[i]; });
}

void swiglu_grad(const Node& n, void*) {
  const float *dy = n.read<float>(0), *gate = n.read<float>(1), *up = n.read<float>(2);
  float *dgate = n.write<float>(0), *dup = n.write<float>(1);
  const auto run = [=](auto add_gate, auto add_up) {
    cpu::over_elements(count(n.in(0)), [=](int64_t first, int64_t last) {
      if (dgate && dup) {
        GALLEY_INDEPENDENT
        for (int64_t i = first; i < last; ++i) {
          const float g = gate[i], s = cpu::sigmoid(g), d = dy[i], u = up[i], gs = g * s;
          cpu::put(add_gate, dgate[i], d * u * cpu::fma(gs, 1.0f - s, s));
          cpu::put(add_up, dup[i], d * gs);
        }
      } else if (dgate) {
        GALLEY_INDEPENDENT
        for (int64_t i = first; i < last; ++i) cpu::put(add_gate, dgate[i], dy[i] * up[i] * cpu::silu_slope(gate[i]));
      } else if (dup) {
        GALLEY_INDEPENDENT
        for (int64_t i = first; i < last; ++i) cpu::put(add_up, dup[i], dy[i] * cpu::silu(gate[i]));
      }
    });
  };
  cpu::by_access(dgate && n.accumulates(0),
                 [&](auto add_gate) { cpu::by_access(dup && n.accumulates(1), [&](auto add_up) { run(add_gate, add_up); }); });
}

const bool added =
    add(kernel<swiglu, cpu::all_f32>("swiglu.cpu", "swiglu")) && add(kernel<swiglu_grad, cpu::all_f32>("swiglu_grad.cpu", "swiglu_grad"));

}  // namespace
