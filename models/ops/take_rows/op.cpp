// Some rows of a tensor: y[k] = row index[k] of x; x (…, C), index (n) I32, y (n, C). Sampling takes the last position of a hidden state
// with it, before the head. Without an index, the same position of each sequence: x (B, S, C), y (B, C), as BERT's pooler takes the first.
//
// The gradient puts rows of dy where they were taken and zeros elsewhere; what was taken several times gets the sum, in order.
#include <cstring>

#include "ops/check.hpp"

namespace galley::models::take_rows_op {
namespace {

using namespace sdk;

/// The attribute "position", of a node without an index.
int64_t position_of(const Node& n, int64_t S) {
  const int64_t position = n.i("position", 0);
  if (position < 0 || position >= S)
    wrong(n, "position = " + std::to_string(position) + "; sequences have positions 0 to " + std::to_string(S - 1));
  return position;
}

void shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "x");
  numbers(n, 0, "x");
  const galley_operand& x = n.in(0);
  if (!n.has(1)) {
    if (x.rank != 3) wrong(n, "x is " + shape_text(x) + "; without an index it has to be (B, S, C)");
    position_of(n, x.shape[1]);
    return out.set(0, n.dtype(x.dtype), {x.shape[0], x.shape[2]});
  }
  integers(n, 1, "index");
  if (n.in(1).rank != 1) wrong(n, "index is " + shape_text(n.in(1)) + "; it has to be (n)");
  out.set(0, n.dtype(x.dtype), {n.in(1).shape[0], columns(x)});
}

/// The row of x, of S positions a sequence, that row k of y is.
int64_t row_of(const Node& n, int64_t k, int64_t S) { return n.has(1) ? n.read<int32_t>(1)[k] : k * S + n.i("position", 0); }

void reference(const Node& n) {
  const double* x = n.read<double>(0);
  double* y = n.write<double>(0);
  const int64_t C = columns(n.in(0)), S = n.has(1) ? 0 : n.in(0).shape[1];
  for (int64_t k = 0; k < rows(n.out(0)); ++k) std::memcpy(y + k * C, x + row_of(n, k, S) * C, static_cast<size_t>(C) * sizeof(double));
}

void gradient(Backward& b) {
  if (!b.needs(0)) return;
  const galley_tensor_info x = b.graph.info(b.node.inputs[0]);
  Attrs attrs;
  attrs.list("shape", {x.shape, x.shape + x.rank});
  if (const galley_attr* position = b.attr("position")) attrs.copy(*position);
  const galley_tensor index = b.node.n_inputs > 1 ? b.node.inputs[1] : 0;
  b.d_inputs[0] = b.graph.node("take_rows_grad", nullptr, {b.d_outputs[0], index}, attrs, {b.d_inputs[0]}, {b.adds(0)})[0];
}

constexpr uint64_t optional = GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_NO_GRADIENT, any = GALLEY_OPERAND_ANY_DTYPE;

Op take_rows("take_rows",
             "y[k] = row index[k] of x; x (…, C), index (n) I32, y (n, C); without index, y[b] = x[b, position]; x (B, S, C), y (B, C)");
const bool added = add(take_rows.input("x", GALLEY_ROLE_WHOLE, any)
                           .input("index", GALLEY_ROLE_WHOLE, optional)
                           .output("y", GALLEY_ROLE_WHOLE, any)
                           .integer("position", 0, "without index: which position of each sequence")
                           .infer<shape>()
                           .gradient<gradient>()
                           .reference<reference>()
                           .test("small", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_I32, {4}, 0, 5}})
                           .test("one", {{GALLEY_F32, {33, 67}}, {GALLEY_I32, {1}, 0, 32}})
                           .test("bf16", {{GALLEY_BF16, {7, 667}}, {GALLEY_I32, {3}, 0, 6}})
                           .test("f16_f32", {{GALLEY_F16, {7, 667}}, {GALLEY_I32, {3}, 0, 6}}, Attrs().s("dtype", "f32"))
                           .test("f32_bf16", {{GALLEY_F32, {7, 67}}, {GALLEY_I32, {3}, 0, 6}}, Attrs().s("dtype", "bf16"))
                           .test("wide", {{GALLEY_BF16, {7, 2064}}, {GALLEY_I32, {3}, 0, 6}})
                           .test("first", {{GALLEY_F32, {5, 7, 67}}, {0, {}}})
                           .test("position", {{GALLEY_F32, {3, 4, 611}}, {0, {}}}, Attrs().i("position", 3))
                           .test("first_bf16", {{GALLEY_BF16, {5, 7, 72}}, {0, {}}}));

void grad_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "dy");
  numbers(n, 0, "dy");
  const galley_attr* const list = galley_attr_find(n.view(), "shape");
  const auto* const shape = list ? static_cast<const int64_t*>(list->data) : nullptr;
  const uint32_t rank = list ? list->count : 0;
  if (rank < 1 || rank > GALLEY_MAX_RANK || shape[rank - 1] != columns(n.in(0)))
    wrong(n, "the attribute 'shape' has to be that of x, of which dy " + shape_text(n.in(0)) + " has rows");
  if (n.has(1)) {
    integers(n, 1, "index");
    one_a_row(n, 1, "index", 0, "dy");
  } else {
    if (rank != 3 || shape[0] != rows(n.in(0)))
      wrong(n, "x is " + shape_text(shape, rank) + "; without an index it has to be (B, S, C), beside dy " + shape_text(n.in(0)));
    position_of(n, shape[1]);
  }
  out.set(0, n.dtype(n.in(0).dtype), shape, rank);
}

void grad_reference(const Node& n) {
  const double* dy = n.read<double>(0);
  double* dx = n.write<double>(0);
  const int64_t C = columns(n.in(0)), S = n.has(1) ? 0 : n.out(0).shape[1];
  for (int64_t i = 0; i < count(n.out(0)); ++i) dx[i] = 0;
  for (int64_t k = 0; k < rows(n.in(0)); ++k)
    for (int64_t c = 0; c < C; ++c) dx[row_of(n, k, S) * C + c] += dy[k * C + c];
}

Attrs of(std::vector<int64_t> shape) { return Attrs().list("shape", std::move(shape)); }

Op take_rows_grad("take_rows_grad", "dx[index[k]] += dy[k] in the order of k, or dx[b, position] = dy[b]; zeros elsewhere");
const bool grad_added = add(take_rows_grad.input("dy", GALLEY_ROLE_WHOLE, any)
                                .input("index", GALLEY_ROLE_WHOLE, optional)
                                .output("dx", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ACCUMULATES | any)
                                .attr("shape", GALLEY_ATTR_I64, GALLEY_ATTR_LIST | GALLEY_ATTR_REQUIRED, "of x")
                                .integer("position", 0, "without index: which position of each sequence")
                                .infer<grad_shape>()
                                .reference<grad_reference>()
                                .test("small", {{GALLEY_F32, {4, 5}}, {GALLEY_I32, {4}, 0, 5}}, of({2, 3, 5}))
                                .test("one", {{GALLEY_F32, {1, 67}}, {GALLEY_I32, {1}, 0, 32}}, of({33, 67}))
                                .test("repeats", {{GALLEY_F32, {150, 130}}, {GALLEY_I32, {150}, 0, 2}}, of({2, 2, 130}))
                                .test("bf16", {{GALLEY_BF16, {30, 667}}, {GALLEY_I32, {30}, 0, 6}}, of({7, 667}))
                                .test("f32_f16", {{GALLEY_F32, {30, 67}}, {GALLEY_I32, {30}, 0, 34}}, of({5, 7, 67}).s("dtype", "f16"))
                                .test("first", {{GALLEY_F32, {5, 67}}, {0, {}}}, of({5, 7, 67}))
                                .test("position", {{GALLEY_F32, {3, 611}}, {0, {}}}, of({3, 4, 611}).i("position", 3))
                                .test("first_bf16", {{GALLEY_BF16, {5, 72}}, {0, {}}}, of({5, 7, 72})));

}  // namespace
}  // namespace galley::models::take_rows_op
