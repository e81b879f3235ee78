// SwiGLU: Shazeer: "GLU Variants Improve Transformer", 2020, arXiv:2002.05202: y = silu(gate)·up, between the two products in front of it
// and the one behind.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::swiglu_op {
namespace {

using namespace sdk;

void forward_shape(const Node& n, Shapes& out) {
  same_shape(n, 0, "gate", 1, "up");
  one_dtype(n, 0, "gate", 1, "up");
  like_in_dtype(out, 0, n, n.in(0));
}

void forward_reference(const Node& n) {
  const double *gate = n.read<double>(0), *up = n.read<double>(1);
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
}

void gradient(Backward& b) {
  const bool gate = b.needs(0), up = b.needs(1);
  if (!gate && !up) return;
  const auto d =
      b.graph.node("swiglu_grad", nullptr, {b.d_outputs[0], b.node.inputs[0], b.node.inputs[1]}, Attrs().i("gate", gate).i("up", up),
                   {gate ? b.d_inputs[0] : 0, up ? b.d_inputs[1] : 0}, {gate && b.adds(0), up && b.adds(1)});
  if (gate) b.d_inputs[0] = d[0];
  if (up) b.d_inputs[1] = d[1];
}

constexpr uint32_t compute = GALLEY_OPERAND_COMPUTE, any = GALLEY_OPERAND_ANY_DTYPE;

Op swiglu("swiglu", "y = silu(gate) · up");
const bool swiglu_added = add(swiglu.input("gate", GALLEY_ROLE_ROWS, compute)
                                  .input("up", GALLEY_ROLE_ROWS, compute)
                                  .output("y", GALLEY_ROLE_ROWS, any, 0)
                                  .infer<forward_shape>()
                                  .gradient<gradient>()
                                  .reference<forward_reference>()
                                  .test("small", {{GALLEY_F32, {2, 3, 5}, -4, 4}, {GALLEY_F32, {2, 3, 5}}})
                                  .test("odd", {{GALLEY_F32, {37, 67}, -4, 4}, {GALLEY_F32, {37, 67}}})
                                  .test("large", {{GALLEY_F32, {5, 4099}, -60, 60}, {GALLEY_F32, {5, 4099}}})
                                  .test("bf16", {{GALLEY_BF16, {5, 4099}, -60, 60}, {GALLEY_BF16, {5, 4099}}})
                                  .test("f16", {{GALLEY_F16, {37, 67}, -4, 4}, {GALLEY_F16, {37, 67}}})
                                  .test("bf16_f32", {{GALLEY_BF16, {7, 33}, -4, 4}, {GALLEY_BF16, {7, 33}}}, Attrs().s("dtype", "f32")));

void backward_shape(const Node& n, Shapes& out) {
  same_shape(n, 0, "dy", 1, "gate");
  same_shape(n, 1, "gate", 2, "up");
  one_dtype(n, 0, "dy", 1, "gate");
  one_dtype(n, 1, "gate", 2, "up");
  if (n.i("gate", 1)) like_in_dtype(out, 0, n, n.in(1));
  else out.absent(0);
  if (n.i("up", 1)) like_in_dtype(out, 1, n, n.in(2));
  else out.absent(1);
}

void backward_reference(const Node& n) {
  const double *dy = n.read<double>(0), *gate = n.read<double>(1), *up = n.read<double>(2);
  double *dgate = n.write<double>(0), *dup = n.write<double>(1);
  for (int64_t i = 0; i < count(n.in(0)); ++i) {
    const double s = 1 / (1 + std::exp(-gate[i]));
    if (dgate) dgate[i] = dy[i] * up[i] * (s + gate[i] * s * (1 - s));
    if (dup) dup[i] = dy[i] * gate[i] * s;
  }
}

Op swiglu_grad("swiglu_grad", "dgate = dy · up · silu'(gate), unless gate = 0; dup = dy · silu(gate), unless up = 0");
const bool swiglu_grad_added = add(
    swiglu_grad.input("dy", GALLEY_ROLE_ROWS, compute)
        .input("gate", GALLEY_ROLE_ROWS, compute)
        .input("up", GALLEY_ROLE_ROWS, compute)
        .output("dgate", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_OPTIONAL | any, 1)
        .output("dup", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_OPTIONAL | any, 2)
        .integer("gate", 1, "0: there is no dgate")
        .integer("up", 1, "0: there is no dup")
        .infer<backward_shape>()
        .reference<backward_reference>()
        .test("small", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_F32, {2, 3, 5}, -4, 4}, {GALLEY_F32, {2, 3, 5}}})
        .test("odd", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}, -4, 4}, {GALLEY_F32, {37, 67}}})
        .test("gate_only", {{GALLEY_F32, {7, 33}}, {GALLEY_F32, {7, 33}, -4, 4}, {GALLEY_F32, {7, 33}}}, Attrs().i("up", 0))
        .test("up_only", {{GALLEY_F32, {7, 33}}, {GALLEY_F32, {7, 33}, -4, 4}, {GALLEY_F32, {7, 33}}}, Attrs().i("gate", 0))
        .test("large", {{GALLEY_F32, {5, 4099}}, {GALLEY_F32, {5, 4099}, -60, 60}, {GALLEY_F32, {5, 4099}}})
        .test("bf16", {{GALLEY_BF16, {5, 4099}}, {GALLEY_BF16, {5, 4099}, -60, 60}, {GALLEY_BF16, {5, 4099}}})
        .test("f16", {{GALLEY_F16, {37, 67}}, {GALLEY_F16, {37, 67}, -4, 4}, {GALLEY_F16, {37, 67}}})
        .test("bf16_gate_only", {{GALLEY_BF16, {7, 33}}, {GALLEY_BF16, {7, 33}, -4, 4}, {GALLEY_BF16, {7, 33}}}, Attrs().i("up", 0))
        .test("bf16_f32", {{GALLEY_BF16, {7, 633}}, {GALLEY_BF16, {7, 633}, -4, 4}, {GALLEY_BF16, {7, 633}}}, Attrs().s("dtype", "f32")));

}  // namespace
}  // namespace galley::models::swiglu_op
