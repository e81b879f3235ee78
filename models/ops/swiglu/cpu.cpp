// Gated units: one pass over three operands forward, five backward. Each element is read before either gradient is written, so both may
// take over an input.
#include "cpu/number.hpp"
#include "ops/activation/functions.hpp"

namespace galley::cpu::swiglu_op {
namespace {

using namespace sdk;

/// The gate and up of a node: two operands, or the halves of the rows of one. Number i of y belongs to number gate(i) of the gate's operand
/// and up(i) of up's. F: numbers that lie side by side.
struct Halves {
  explicit Halves(const Node& n, uint32_t gate)
      : packed(!n.has(gate + 1)), count(packed ? galley::sdk::count(n.in(gate)) / 2 : galley::sdk::count(n.in(gate))) {
    F = packed ? columns(n.in(gate)) / 2 : count;
  }
  int64_t gate(int64_t i) const { return packed ? i / F * 2 * F + i % F : i; }
  int64_t up(int64_t i) const { return packed ? gate(i) + F : i; }
  /// body(at, size) for runs of [0, count) that lie in one row, in parallel. In place, all of them are read where they lie.
  template <class Body>
  void runs(int64_t run, const Body& body) const {
    const int64_t row = F;
    cpu::over_elements(count, [=](int64_t first, int64_t last) {
      while (first < last) {
        const int64_t end = std::min(last, (first / row + 1) * row);
        cpu::in_runs(first, end, run, body);
        first = end;
      }
    });
  }
  bool packed;
  int64_t count, F;
};

template <class Gate>
void forward(const Node& n, void* workspace) {
  if (n.has(1)) return cpu::map(n, [](float gate, float up) { return cpu::gated<Gate>(gate, up); });
  const Halves halves(n, 0);
  const cpu::Input x(n, 0);
  const cpu::Output y(n, 0);
  // y in the place of what it is made of, as numbers twice as long: other numbers lie there than those that have been read.
  float* const apart = n.in(0).data == n.out(0).data ? static_cast<float*>(workspace) : nullptr;
  const int64_t run = cpu::run_over(x, y);
  cpu::by_access(y.adds(), [&](auto add) {
    halves.runs(run, [=](int64_t at, int64_t size) {
      cpu::Buffer buffers[3];
      const float *g = x.read(halves.gate(at), size, buffers[0]), *u = x.read(halves.up(at), size, buffers[1]);
      float* const to = apart ? apart + at : y.open(at, size, buffers[2]);
      GALLEY_INDEPENDENT
      for (int64_t i = 0; i < size; ++i) cpu::put(add, to[i], cpu::gated<Gate>(g[i], u[i]));
      if (!apart) y.close(at, size, to);
    });
  });
  if (!apart) return;
  float* const to = n.write<float>(0);
  cpu::over_elements(halves.count, [=](int64_t first, int64_t last) { std::copy(apart + first, apart + last, to + first); });
}

template <class Gate>
void backward(const Node& n, void*) {
  const Halves halves(n, 1);
  const cpu::Input dy(n, 0), gate(n, 1), up(n, halves.packed ? 1 : 2);
  const cpu::Output dgate(n, 0), dup(n, halves.packed ? 0 : 1);
  const int64_t run = cpu::run_over(dy, gate, up, dgate, dup);
  const auto both = [&](auto add_gate, auto add_up) {
    halves.runs(run, [=](int64_t at, int64_t size) {
      cpu::Buffer buffers[5];
      const int64_t at_gate = halves.gate(at), at_up = halves.up(at);
      const float *d = dy.read(at, size, buffers[0]), *g = gate.read(at_gate, size, buffers[1]);
      float* const to_up = dup ? dup.open(at_up, size, buffers[2]) : nullptr;
      if (dgate) {
        const float* u = up.read(at_up, size, buffers[3]);
        float* const to_gate = dgate.open(at_gate, size, buffers[4]);
        if (to_up) {
          GALLEY_INDEPENDENT
          for (int64_t i = 0; i < size; ++i) {
            float value, slope;
            Gate::both(g[i], value, slope);
            const float di = d[i], ui = u[i];
            cpu::put(add_gate, to_gate[i], di * ui * slope);
            cpu::put(add_up, to_up[i], di * value);
          }
        } else {
          GALLEY_INDEPENDENT
          for (int64_t i = 0; i < size; ++i) {
            float value, slope;
            Gate::both(g[i], value, slope);
            cpu::put(add_gate, to_gate[i], d[i] * u[i] * slope);
          }
        }
        dgate.close(at_gate, size, to_gate);
      } else {
        GALLEY_INDEPENDENT
        for (int64_t i = 0; i < size; ++i) cpu::put(add_up, to_up[i], d[i] * Gate::value(g[i]));
      }
      if (to_up) dup.close(at_up, size, to_up);
    });
  };
  cpu::by_access(dgate.adds(), [&](auto add_gate) { cpu::by_access(dup.adds(), [&](auto add_up) { both(add_gate, add_up); }); });
}

void swiglu(const Node& n, void* workspace) {
  cpu::by_gate(n, [&](auto gate) { forward<decltype(gate)>(n, workspace); });
}
void swiglu_grad(const Node& n, void* workspace) {
  cpu::by_gate(n, [&](auto gate) { backward<decltype(gate)>(n, workspace); });
}

/// Where y may take over an operand with two numbers for each of its own.
int64_t workspace(const Node& n, const galley_target&) {
  const bool may = !n.has(1) && n.in(0).dtype != n.out(0).dtype && n.out(0).dtype == GALLEY_F32;
  return may ? count(n.out(0)) * static_cast<int64_t>(sizeof(float)) : 0;
}

const bool added = add(kernel<swiglu, cpu::all_numbers, workspace>("swiglu.cpu", "swiglu")) &&
                   add(kernel<swiglu_grad, cpu::all_numbers>("swiglu_grad.cpu", "swiglu_grad"));

}  // namespace
}  // namespace galley::cpu::swiglu_op
