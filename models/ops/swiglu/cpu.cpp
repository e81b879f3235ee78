// SwiGLU: one pass over three operands forward, five backward. Each element is read before either gradient is written, so both may take
// over an input.
#include "cpu/number.hpp"
#include "ops/activation/functions.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

void swiglu(const Node& n, void*) {
  cpu::map(n, [](float gate, float up) { return cpu::swiglu(gate, up); });
}

void swiglu_grad(const Node& n, void*) {
  const cpu::Input dy(n, 0), gate(n, 1), up(n, 2);
  const cpu::Output dgate(n, 0), dup(n, 1);
  if (!dup) return cpu::map(std::make_index_sequence<3>(), n, [](float d, float g, float u) { return d * u * cpu::silu_slope(g); });
  const int64_t run = cpu::run_over(dy, gate, up, dgate, dup);
  const auto both = [=](auto add_gate, auto add_up) {
    cpu::over_elements(count(n.in(0)), [=](int64_t first, int64_t last) {
      cpu::Buffer buffers[5];
      cpu::in_runs(first, last, run, [&](int64_t at, int64_t size) {
        const float *d = dy.read(at, size, buffers[0]), *g = gate.read(at, size, buffers[1]);
        float* const to_up = dup.open(at, size, buffers[2]);
        if (dgate) {
          const float* u = up.read(at, size, buffers[3]);
          float* const to_gate = dgate.open(at, size, buffers[4]);
          GALLEY_INDEPENDENT
          for (int64_t i = 0; i < size; ++i) {
            const float gi = g[i], s = cpu::sigmoid(gi), di = d[i], ui = u[i], gs = gi * s;
            cpu::put(add_gate, to_gate[i], di * ui * cpu::fma(gs, 1.0f - s, s));
            cpu::put(add_up, to_up[i], di * gs);
          }
          dgate.close(at, size, to_gate);
        } else {
          GALLEY_INDEPENDENT
          for (int64_t i = 0; i < size; ++i) cpu::put(add_up, to_up[i], d[i] * cpu::silu(g[i]));
        }
        dup.close(at, size, to_up);
      });
    });
  };
  cpu::by_access(dgate.adds(), [&](auto add_gate) { cpu::by_access(dup.adds(), [&](auto add_up) { both(add_gate, add_up); }); });
}

const bool added = add(kernel<swiglu, cpu::all_numbers>("swiglu.cpu", "swiglu")) &&
                   add(kernel<swiglu_grad, cpu::all_numbers>("swiglu_grad.cpu", "swiglu_grad"));

}  // namespace
