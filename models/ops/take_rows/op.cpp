// Some rows of a tensor: y[k] = row index[k] of x; x (…, C), index (n) I32, y (n, C). Sampling takes the last position of a hidden state
// with it, before the head.
#include <cstring>

#include "ops/check.hpp"

namespace galley::models::take_rows_op {
namespace {

using namespace sdk;

void shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "x");
  numbers(n, 0, "x");
  integers(n, 1, "index");
  if (n.in(1).rank != 1) wrong(n, "index is " + shape_text(n.in(1)) + "; it has to be (n)");
  out.set(0, n.dtype(n.in(0).dtype), {n.in(1).shape[0], columns(n.in(0))});
}

void reference(const Node& n) {
  const double* x = n.read<double>(0);
  const int32_t* index = n.read<int32_t>(1);
  double* y = n.write<double>(0);
  const int64_t C = columns(n.in(0));
  for (int64_t k = 0; k < count(n.in(1)); ++k) std::memcpy(y + k * C, x + index[k] * C, static_cast<size_t>(C) * sizeof(double));
}

Op take_rows("take_rows", "y[k] = row index[k] of x; x (…, C), index (n) I32, y (n, C)");
const bool added = add(take_rows.input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
                           .input("index", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                           .output("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
                           .infer<shape>()
                           .reference<reference>()
                           .test("small", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_I32, {4}, 0, 5}})
                           .test("one", {{GALLEY_F32, {33, 67}}, {GALLEY_I32, {1}, 0, 32}})
                           .test("bf16", {{GALLEY_BF16, {7, 667}}, {GALLEY_I32, {3}, 0, 6}})
                           .test("f16_f32", {{GALLEY_F16, {7, 667}}, {GALLEY_I32, {3}, 0, 6}}, Attrs().s("dtype", "f32"))
                           .test("f32_bf16", {{GALLEY_F32, {7, 67}}, {GALLEY_I32, {3}, 0, 6}}, Attrs().s("dtype", "bf16"))
                           .test("wide", {{GALLEY_BF16, {7, 2064}}, {GALLEY_I32, {3}, 0, 6}}));

}  // namespace
}  // namespace galley::models::take_rows_op
