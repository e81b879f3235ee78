// Transposition of a matrix: y[j, i] = x[i, j]; x (M, N), y (N, M). Merging an adapter into a weight that is stored the other way round
// needs it.
#include "ops/check.hpp"

namespace galley::models::transpose_op {
namespace {

using namespace sdk;

void shape(const Node& n, Shapes& out) {
  const galley_operand& x = n.in(0);
  if (x.rank != 2) wrong(n, "x is " + shape_text(x) + "; it has to be a matrix");
  numbers(n, 0, "x");
  out.set(0, n.dtype(x.dtype), {x.shape[1], x.shape[0]});
}

void reference(const Node& n) {
  const double* x = n.read<double>(0);
  double* y = n.write<double>(0);
  const int64_t M = n.in(0).shape[0], N = n.in(0).shape[1];
  for (int64_t i = 0; i < M; ++i)
    for (int64_t j = 0; j < N; ++j) y[j * M + i] = x[i * N + j];
}

void gradient(Backward& b) {
  if (!b.needs(0)) return;
  const std::string name = std::string(b.node.name) + ".grad";
  b.d_inputs[0] = b.graph.node("transpose", name.c_str(), {b.d_outputs[0]}, {}, {b.d_inputs[0]}, {b.adds(0)})[0];
}

Op transpose("transpose", "y = xᵀ; x (M, N), y (N, M)");
const bool added = add(transpose.input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
                           .output("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE)
                           .infer<shape>()
                           .gradient<gradient>()
                           .reference<reference>()
                           .test("small", {{GALLEY_F32, {2, 3}}})
                           .test("odd", {{GALLEY_F32, {131, 67}}})
                           .test("row", {{GALLEY_F32, {1, 100}}})
                           .test("column", {{GALLEY_F32, {1031, 1}}})
                           .test("bf16", {{GALLEY_BF16, {131, 67}}})
                           .test("f16", {{GALLEY_F16, {67, 131}}})
                           .test("bf16_f32", {{GALLEY_BF16, {131, 67}}}, Attrs().s("dtype", "f32"))
                           .test("f32_bf16", {{GALLEY_F32, {131, 67}}}, Attrs().s("dtype", "bf16"))
                           .test("aligned", {{GALLEY_BF16, {136, 72}}}));

}  // namespace
}  // namespace galley::models::transpose_op
