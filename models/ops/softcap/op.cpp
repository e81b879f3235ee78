// Soft caps: y = cap · tanh(x / cap), which stays between −cap and cap and is nearly x near 0. Bello, Pham, Le, Norouzi, Bengio: "Neural
// Combinatorial Optimization with Reinforcement Learning", 2016, arXiv:1611.09940; Gemma 2 (arXiv:2408.00118) caps its logits with 30.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::softcap_op {
namespace {

using namespace sdk;

double cap_of(const Node& n) {
  const double cap = n.f("cap", 0);
  if (!(cap > 0)) wrong(n, "cap = " + std::to_string(cap) + "; it has to be above 0");
  return cap;
}

void forward_shape(const Node& n, Shapes& out) {
  cap_of(n);
  numbers(n, 0, "x");
  like_in_dtype(out, 0, n, n.in(0));
}
void forward_reference(const Node& n) {
  const double cap = cap_of(n);
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = cap * std::tanh(n.read<double>(0)[i] / cap);
}
void gradient(Backward& b) {
  if (!b.needs(0)) return;
  b.d_inputs[0] = b.graph.node("softcap_grad", nullptr, {b.d_outputs[0], b.node.inputs[0]}, b.attrs(), {b.d_inputs[0]}, {b.adds(0)})[0];
}

void backward_shape(const Node& n, Shapes& out) {
  cap_of(n);
  same_shape(n, 0, "dy", 1, "x");
  one_dtype(n, 0, "dy", 1, "x");
  like_in_dtype(out, 0, n, n.in(0));
}
void backward_reference(const Node& n) {
  const double cap = cap_of(n);
  for (int64_t i = 0; i < count(n.in(0)); ++i) {
    const double c = std::cosh(n.read<double>(1)[i] / cap);
    n.write<double>(0)[i] = n.read<double>(0)[i] / (c * c);
  }
}

constexpr uint64_t compute = GALLEY_OPERAND_COMPUTE, any = GALLEY_OPERAND_ANY_DTYPE;
constexpr const char* summary = "the most that |y| comes near to, above 0";
Attrs with(double cap) { return Attrs().f("cap", cap); }

Op softcap("softcap", "y = cap · tanh(x / cap)");
const bool softcap_added = add(softcap.input("x", GALLEY_ROLE_ROWS, compute)
                                   .output("y", GALLEY_ROLE_ROWS, any, 0)
                                   .attr("cap", GALLEY_ATTR_F64, GALLEY_ATTR_REQUIRED, summary)
                                   .infer<forward_shape>()
                                   .gradient<gradient>()
                                   .reference<forward_reference>()
                                   .test("small", {{GALLEY_F32, {2, 3, 5}, -4, 4}}, with(2))
                                   .test("odd", {{GALLEY_F32, {37, 67}, -40, 40}}, with(30))
                                   .test("far", {{GALLEY_F32, {5, 4099}, -900, 900}}, with(30))
                                   .test("flat", {{GALLEY_F32, {5, 611}, -0.01, 0.01}}, with(50))
                                   .test("bf16", {{GALLEY_BF16, {37, 67}, -60, 60}}, with(30))
                                   .test("f16", {{GALLEY_F16, {5, 4099}, -60, 60}}, with(30))
                                   .test("bf16_f32", {{GALLEY_BF16, {3, 611}, -60, 60}}, with(30).s("dtype", "f32")));

Op softcap_grad("softcap_grad", "dx = dy · (1 - tanh²(x / cap))");
const bool softcap_grad_added =
    add(softcap_grad.input("dy", GALLEY_ROLE_ROWS, compute)
            .input("x", GALLEY_ROLE_ROWS, compute)
            .output("dx", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any, 0)
            .attr("cap", GALLEY_ATTR_F64, GALLEY_ATTR_REQUIRED, summary)
            .infer<backward_shape>()
            .reference<backward_reference>()
            .test("small", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_F32, {2, 3, 5}, -4, 4}}, with(2))
            .test("odd", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}, -40, 40}}, with(30))
            .test("far", {{GALLEY_F32, {5, 4099}}, {GALLEY_F32, {5, 4099}, -900, 900}}, with(30))
            .test("bf16", {{GALLEY_BF16, {37, 67}}, {GALLEY_BF16, {37, 67}, -60, 60}}, with(30))
            .test("f16", {{GALLEY_F16, {5, 4099}}, {GALLEY_F16, {5, 4099}, -60, 60}}, with(30))
            .test("bf16_f32", {{GALLEY_BF16, {3, 611}}, {GALLEY_BF16, {3, 611}, -60, 60}}, with(30).s("dtype", "f32")));

}  // namespace
}  // namespace galley::models::softcap_op
