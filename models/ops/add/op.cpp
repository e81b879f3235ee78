// Sums of two tensors, and multiples of one.
#include "ops/check.hpp"

namespace galley::models::add_op {
namespace {

using namespace sdk;

double alpha_of(const Backward& b) {
  const galley_attr* a = b.attr("alpha");
  if (!a) return 1;
  return a->type == GALLEY_ATTR_I64 ? static_cast<double>(*static_cast<const int64_t*>(a->data)) : *static_cast<const double*>(a->data);
}

// A gradient that is d times `alpha`: d itself where that will do.
galley_tensor multiple(Backward& b, uint32_t input, galley_tensor d, double alpha) {
  if (alpha == 1 && !b.d_inputs[input]) return d;
  if (alpha == 1) return b.graph.node("copy", nullptr, {d}, {}, {b.d_inputs[input]}, {b.adds(input)})[0];
  return b.graph.node("scale", nullptr, {d}, Attrs().f("alpha", alpha), {b.d_inputs[input]}, {b.adds(input)})[0];
}

void add_shape(const Node& n, Shapes& out) {
  same_shape(n, 0, "a", 1, "b");
  one_dtype(n, 0, "a", 1, "b");
  like_in_dtype(out, 0, n, n.in(0));
}
void add_reference(const Node& n) {
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = n.read<double>(0)[i] + n.f("alpha", 1) * n.read<double>(1)[i];
}
void add_gradient(Backward& b) {
  if (b.needs(0)) b.d_inputs[0] = multiple(b, 0, b.d_outputs[0], 1);
  if (b.needs(1)) b.d_inputs[1] = multiple(b, 1, b.d_outputs[0], alpha_of(b));
}

constexpr uint64_t compute = GALLEY_OPERAND_COMPUTE, sum = GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE;

Op add_op("add", "y = a + alpha · b");
const bool add_added = add(add_op.input("a", GALLEY_ROLE_ROWS, compute)
                               .input("b", GALLEY_ROLE_ROWS, compute)
                               .output("y", GALLEY_ROLE_ROWS, sum, 0)
                               .number("alpha", 1, "the factor of b")
                               .infer<add_shape>()
                               .gradient<add_gradient>()
                               .reference<add_reference>()
                               .test("small", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_F32, {2, 3, 5}}})
                               .test("number", {{GALLEY_F32, {}}, {GALLEY_F32, {}}})
                               .test("alpha", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}}}, Attrs().f("alpha", -0.3))
                               .test("large", {{GALLEY_F32, {5, 13, 1031}}, {GALLEY_F32, {5, 13, 1031}}})
                               .test("bf16", {{GALLEY_BF16, {5, 13, 1031}}, {GALLEY_BF16, {5, 13, 1031}}})
                               .test("f16", {{GALLEY_F16, {37, 67}}, {GALLEY_F16, {37, 67}}}, Attrs().f("alpha", -0.3))
                               .test("bf16_f32", {{GALLEY_BF16, {37, 67}}, {GALLEY_BF16, {37, 67}}}, Attrs().s("dtype", "f32"))
                               .test("f32_bf16", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}}}, Attrs().s("dtype", "bf16")));

void scale_shape(const Node& n, Shapes& out) {
  numbers(n, 0, "x");
  like_in_dtype(out, 0, n, n.in(0));
}
void scale_reference(const Node& n) {
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = n.f("alpha", 1) * n.read<double>(0)[i];
}
void scale_gradient(Backward& b) {
  if (b.needs(0)) b.d_inputs[0] = multiple(b, 0, b.d_outputs[0], alpha_of(b));
}

Op scale_op("scale", "y = alpha · x");
const bool scale_added = add(scale_op.input("x", GALLEY_ROLE_ROWS, compute)
                                 .output("y", GALLEY_ROLE_ROWS, sum, 0)
                                 .number("alpha", 1, "the factor")
                                 .infer<scale_shape>()
                                 .gradient<scale_gradient>()
                                 .reference<scale_reference>()
                                 .test("small", {{GALLEY_F32, {2, 3, 5}}}, Attrs().f("alpha", 0.125))
                                 .test("one", {{GALLEY_F32, {2, 3, 5}}})
                                 .test("large", {{GALLEY_F32, {5, 13, 1031}}}, Attrs().f("alpha", -3.7))
                                 .test("bf16", {{GALLEY_BF16, {5, 13, 1031}}}, Attrs().f("alpha", -3.7))
                                 .test("f16_bf16", {{GALLEY_F16, {37, 67}}}, Attrs().f("alpha", 0.3).s("dtype", "bf16")));

}  // namespace
}  // namespace galley::models::add_op
