// Gated units: Shazeer: "GLU Variants Improve Transformer", 2020, arXiv:2002.05202: y = act(gate)·up, between the two products in front of
// it and the one after. The attribute "activation" says which: "silu" (SwiGLU, the default), "gelu" (GeGLU), "gelu_tanh" (the same by its
// approximation: Gemma, T5 1.1), "relu" (ReGLU), "sigmoid" (GLU).
//
// gate and up are two operands, or, with `up` absent, the halves of the rows of one: what a product makes whose weight holds those of both
// (Phi-3's gate_up_proj). Its gradient is one tensor then.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::swiglu_op {
namespace {

using namespace sdk;

struct Gate {
  double value, slope;
};
using Activation = Gate (*)(double);

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
Gate silu(double x) {
  const double s = sigmoid(x);
  return {x * s, s + x * s * (1 - s)};
}
Gate gelu(double x) {
  const double part = 0.5 * (1 + std::erf(x / std::sqrt(2.0)));
  return {x * part, part + x * std::exp(-0.5 * x * x) / std::sqrt(6.283185307179586477)};
}
Gate gelu_tanh(double x) {
  constexpr double root_2_over_pi = 0.79788456080286535588, cubic = 0.044715;
  const double t = std::tanh(root_2_over_pi * (x + cubic * x * x * x));
  return {0.5 * x * (1 + t), 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_over_pi * (1 + 3 * cubic * x * x)};
}
Gate relu(double x) { return x > 0 ? Gate{x, 1} : Gate{0, 0}; }
Gate sigmoid_gate(double x) { return {sigmoid(x), sigmoid(x) * sigmoid(-x)}; }

Activation activation_of(const Node& n) {
  const std::string name = n.s("activation", "silu");
  if (name == "silu") return silu;
  if (name == "gelu") return gelu;
  if (name == "gelu_tanh") return gelu_tanh;
  if (name == "relu") return relu;
  if (name == "sigmoid") return sigmoid_gate;
  wrong(n, "activation = '" + name + "'; known are 'silu', 'gelu', 'gelu_tanh', 'relu' and 'sigmoid'");
}

/// Gate and up, of which the first is input `gate`. Number i of y belongs to numbers at(i) of the gate's operand and up(i) of up's.
struct Halves {
  Halves(const Node& n, uint32_t gate) : packed(!n.has(gate + 1)), F(packed ? columns(n.in(gate)) / 2 : 1) {}
  void check(const Node& n, uint32_t gate) const {
    numbers(n, gate, "gate");
    if (packed && (n.in(gate).rank == 0 || columns(n.in(gate)) % 2))
      wrong(n, "gate is " + shape_text(n.in(gate)) + "; without up, its last extent has to be even: gate and up side by side");
    if (packed) return;
    same_shape(n, gate, "gate", gate + 1, "up");
    one_dtype(n, gate, "gate", gate + 1, "up");
  }
  int64_t at(int64_t i) const { return packed ? i / F * 2 * F + i % F : i; }
  int64_t up(int64_t i) const { return packed ? at(i) + F : i; }
  bool packed;
  int64_t F;
};

void forward_shape(const Node& n, Shapes& out) {
  activation_of(n);
  const Halves halves(n, 0);
  halves.check(n, 0);
  if (halves.packed) like_in_dtype(out, 0, n, n.in(0), halves.F);
  else like_in_dtype(out, 0, n, n.in(0));
}

void forward_reference(const Node& n) {
  const Halves halves(n, 0);
  const Activation act = activation_of(n);
  const double *gate = n.read<double>(0), *up = halves.packed ? gate : n.read<double>(1);
  for (int64_t i = 0; i < count(n.out(0)); ++i) n.write<double>(0)[i] = act(gate[halves.at(i)]).value * up[halves.up(i)];
}

void gradient(Backward& b) {
  const bool packed = b.node.n_inputs < 2 || !b.node.inputs[1], gate = b.needs(0), up = !packed && b.needs(1);
  if (!gate && !up) return;
  Attrs attrs;
  if (const galley_attr* a = b.attr("activation")) attrs.copy(*a);
  if (packed) {
    b.d_inputs[0] =
        b.graph.node("swiglu_grad", nullptr, {b.d_outputs[0], b.node.inputs[0], 0}, attrs, {b.d_inputs[0], 0}, {b.adds(0), false})[0];
    return;
  }
  attrs.i("gate", gate).i("up", up);
  const auto d = b.graph.node("swiglu_grad", nullptr, {b.d_outputs[0], b.node.inputs[0], b.node.inputs[1]}, attrs,
                              {gate ? b.d_inputs[0] : 0, up ? b.d_inputs[1] : 0}, {gate && b.adds(0), up && b.adds(1)});
  if (gate) b.d_inputs[0] = d[0];
  if (up) b.d_inputs[1] = d[1];
}

constexpr uint64_t compute = GALLEY_OPERAND_COMPUTE, any = GALLEY_OPERAND_ANY_DTYPE, optional = GALLEY_OPERAND_OPTIONAL;
constexpr const char* activations = "of the gate: silu, gelu, gelu_tanh, relu or sigmoid";
Attrs with(const char* activation) { return Attrs().s("activation", activation); }

Op swiglu("swiglu", "y = act(gate) · up; gate and up (…, F), or, without up, gate (…, 2·F) holds both side by side; y (…, F)");
const bool swiglu_added = add(swiglu.input("gate", GALLEY_ROLE_ROWS, compute)
                                  .input("up", GALLEY_ROLE_ROWS, compute | optional)
                                  .output("y", GALLEY_ROLE_ROWS, any, 0)
                                  .string("activation", "silu", activations)
                                  .infer<forward_shape>()
                                  .gradient<gradient>()
                                  .reference<forward_reference>()
                                  .test("small", {{GALLEY_F32, {2, 3, 5}, -4, 4}, {GALLEY_F32, {2, 3, 5}}})
                                  .test("odd", {{GALLEY_F32, {37, 67}, -4, 4}, {GALLEY_F32, {37, 67}}})
                                  .test("large", {{GALLEY_F32, {5, 4099}, -60, 60}, {GALLEY_F32, {5, 4099}}})
                                  .test("bf16", {{GALLEY_BF16, {5, 4099}, -60, 60}, {GALLEY_BF16, {5, 4099}}})
                                  .test("f16", {{GALLEY_F16, {37, 67}, -4, 4}, {GALLEY_F16, {37, 67}}})
                                  .test("bf16_f32", {{GALLEY_BF16, {7, 33}, -4, 4}, {GALLEY_BF16, {7, 33}}}, Attrs().s("dtype", "f32"))
                                  .test("gelu", {{GALLEY_F32, {37, 67}, -4, 4}, {GALLEY_F32, {37, 67}}}, with("gelu"))
                                  .test("gelu_tanh", {{GALLEY_F32, {5, 611}, -60, 60}, {GALLEY_F32, {5, 611}}}, with("gelu_tanh"))
                                  .test("gelu_tanh_bf16", {{GALLEY_BF16, {37, 67}, -4, 4}, {GALLEY_BF16, {37, 67}}}, with("gelu_tanh"))
                                  .test("relu", {{GALLEY_F32, {7, 33}, 0.01, 4}, {GALLEY_F32, {7, 33}}}, with("relu"))
                                  .test("sigmoid", {{GALLEY_F32, {7, 33}, -9, 9}, {GALLEY_F32, {7, 33}}}, with("sigmoid"))
                                  .test("packed", {{GALLEY_F32, {2, 3, 10}, -4, 4}, {0, {}}})
                                  .test("packed_odd", {{GALLEY_F32, {37, 134}, -4, 4}, {0, {}}}, with("gelu_tanh"))
                                  .test("packed_large", {{GALLEY_F32, {5, 8198}, -60, 60}, {0, {}}}, with("gelu"))
                                  .test("packed_bf16", {{GALLEY_BF16, {5, 8200}, -60, 60}, {0, {}}})
                                  .test("packed_f16", {{GALLEY_F16, {37, 66}, -4, 4}, {0, {}}})
                                  .test("packed_bf16_f32", {{GALLEY_BF16, {41, 1078}, -4, 4}, {0, {}}}, Attrs().s("dtype", "f32")));

void backward_shape(const Node& n, Shapes& out) {
  activation_of(n);
  const Halves halves(n, 1);
  halves.check(n, 1);
  if (halves.packed) {
    if (rows(n.in(0)) != rows(n.in(1)) || columns(n.in(0)) != halves.F)
      wrong(n, "dy is " + shape_text(n.in(0)) + ", but gate and up side by side are " + shape_text(n.in(1)));
    like_in_dtype(out, 0, n, n.in(1));
    return out.absent(1);
  }
  same_shape(n, 0, "dy", 1, "gate");
  one_dtype(n, 0, "dy", 1, "gate");
  if (n.i("gate", 1)) like_in_dtype(out, 0, n, n.in(1));
  else out.absent(0);
  if (n.i("up", 1)) like_in_dtype(out, 1, n, n.in(2));
  else out.absent(1);
}

void backward_reference(const Node& n) {
  const Halves halves(n, 1);
  const Activation act = activation_of(n);
  const double *dy = n.read<double>(0), *gate = n.read<double>(1), *up = halves.packed ? gate : n.read<double>(2);
  double *dgate = n.write<double>(0), *dup = halves.packed ? dgate : n.write<double>(1);
  for (int64_t i = 0; i < count(n.in(0)); ++i) {
    const Gate g = act(gate[halves.at(i)]);
    if (dgate) dgate[halves.at(i)] = dy[i] * up[halves.up(i)] * g.slope;
    if (dup) dup[halves.up(i)] = dy[i] * g.value;
  }
}

Op swiglu_grad("swiglu_grad",
               "dgate = dy · up · act'(gate), unless gate = 0; dup = dy · act(gate), unless up = 0; without up, dgate holds both");
const bool swiglu_grad_added =
    add(swiglu_grad.input("dy", GALLEY_ROLE_ROWS, compute)
            .input("gate", GALLEY_ROLE_ROWS, compute)
            .input("up", GALLEY_ROLE_ROWS, compute | optional)
            .output("dgate", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | optional | any, 1)
            .output("dup", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | optional | any, 2)
            .integer("gate", 1, "0: there is no dgate")
            .integer("up", 1, "0: there is no dup")
            .string("activation", "silu", activations)
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
            .test("bf16_f32", {{GALLEY_BF16, {7, 633}}, {GALLEY_BF16, {7, 633}, -4, 4}, {GALLEY_BF16, {7, 633}}}, Attrs().s("dtype", "f32"))
            .test("gelu", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}, -4, 4}, {GALLEY_F32, {37, 67}}}, with("gelu"))
            .test("gelu_tanh", {{GALLEY_F32, {5, 611}}, {GALLEY_F32, {5, 611}, -60, 60}, {GALLEY_F32, {5, 611}}}, with("gelu_tanh"))
            .test("gelu_tanh_bf16", {{GALLEY_BF16, {37, 67}}, {GALLEY_BF16, {37, 67}, -4, 4}, {GALLEY_BF16, {37, 67}}}, with("gelu_tanh"))
            .test("gelu_up_only", {{GALLEY_F32, {7, 33}}, {GALLEY_F32, {7, 33}, -4, 4}, {GALLEY_F32, {7, 33}}}, with("gelu").i("gate", 0))
            .test("relu", {{GALLEY_F32, {7, 33}}, {GALLEY_F32, {7, 33}, -4, 4}, {GALLEY_F32, {7, 33}}}, with("relu"))
            .test("sigmoid", {{GALLEY_F32, {7, 33}}, {GALLEY_F32, {7, 33}, -9, 9}, {GALLEY_F32, {7, 33}}}, with("sigmoid"))
            .test("packed", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_F32, {2, 3, 10}, -4, 4}, {0, {}}})
            .test("packed_odd", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 134}, -4, 4}, {0, {}}}, with("gelu_tanh"))
            .test("packed_large", {{GALLEY_F32, {5, 4099}}, {GALLEY_F32, {5, 8198}, -60, 60}, {0, {}}}, with("gelu"))
            .test("packed_bf16", {{GALLEY_BF16, {5, 4100}}, {GALLEY_BF16, {5, 8200}, -60, 60}, {0, {}}})
            .test("packed_f16", {{GALLEY_F16, {37, 33}}, {GALLEY_F16, {37, 66}, -4, 4}, {0, {}}})
            .test("packed_bf16_f32", {{GALLEY_BF16, {7, 633}}, {GALLEY_BF16, {7, 1266}, -4, 4}, {0, {}}}, Attrs().s("dtype", "f32")));

}  // namespace
}  // namespace galley::models::swiglu_op
