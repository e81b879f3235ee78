// Rows of a table by id, and the gradient that adds rows of dy back into the table. A row that stands for padding may be looked up like any
// other, and gets no gradient from that.
#include "ops/check.hpp"

namespace galley::models::embedding_op {
namespace {

using namespace sdk;

void embedding_shape(const Node& n, Shapes& out) {
  integers(n, 0, "ids");
  const galley_operand &ids = n.in(0), &table = n.in(1);
  numbers(n, 1, "table");
  if (table.rank != 2) wrong(n, "table is " + shape_text(table) + "; it has to be (V, C)");
  if (ids.rank + 1 > GALLEY_MAX_RANK) wrong(n, "ids has rank " + std::to_string(ids.rank) + "; at most 7 fit");
  int64_t shape[GALLEY_MAX_RANK];
  for (uint32_t k = 0; k < ids.rank; ++k) shape[k] = ids.shape[k];
  shape[ids.rank] = table.shape[1];
  out.set(0, GALLEY_F32, shape, ids.rank + 1);
}

void embedding_reference(const Node& n) {
  const int32_t* ids = n.read<int32_t>(0);
  const double* table = n.read<double>(1);
  double* y = n.write<double>(0);
  const int64_t C = columns(n.in(1));
  for (int64_t r = 0; r < count(n.in(0)); ++r)
    for (int64_t c = 0; c < C; ++c) y[r * C + c] = table[ids[r] * C + c];
}

void embedding_gradient(Backward& b) {
  if (!b.needs(1)) return;
  Attrs attrs;
  attrs.i("rows", b.graph.info(b.node.inputs[1]).shape[0]);
  if (const galley_attr* padding = b.attr("padding")) attrs.copy(*padding);
  b.d_inputs[1] = b.graph.node("embedding_grad", nullptr, {b.d_outputs[0], b.node.inputs[0]}, attrs, {b.d_inputs[1]}, {b.adds(1)})[0];
}

// Only the rows that are looked up are read.
void embedding_cost(const Node& n, galley_cost& cost) {
  const double row = static_cast<double>(columns(n.in(1)) * (galley_dtype_bytes(n.in(1).dtype) + 4));
  cost.bytes = static_cast<double>(count(n.in(0))) * (row + 4);
}

Op embedding("embedding", "y = table[ids]; ids (…) I32, table (V, C), y (…, C) F32");
const bool embedding_added = add(embedding.input("ids", GALLEY_ROLE_ROWS, GALLEY_OPERAND_SAME_ROWS | GALLEY_OPERAND_NO_GRADIENT)
                                     .input("table", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
                                     .output("y", GALLEY_ROLE_ROWS)
                                     .flags(GALLEY_OP_LOW)
                                     .attr("padding", GALLEY_ATTR_I64, GALLEY_ATTR_STOPS, "the row of the table that gets no gradient")
                                     .infer<embedding_shape>()
                                     .gradient<embedding_gradient>()
                                     .cost<embedding_cost>()
                                     .reference<embedding_reference>()
                                     .test("small", {{GALLEY_I32, {2, 3}, 0, 4}, {GALLEY_F32, {5, 4}}})
                                     .test("odd", {{GALLEY_I32, {37}, 0, 10}, {GALLEY_F32, {11, 67}}})
                                     .test("repeats", {{GALLEY_I32, {3, 50}, 0, 2}, {GALLEY_F32, {3, 130}}})
                                     .test("wide", {{GALLEY_I32, {2, 9}, 0, 299}, {GALLEY_F32, {300, 513}}})
                                     .test("bf16", {{GALLEY_I32, {2, 9}, 0, 299}, {GALLEY_BF16, {300, 513}}})
                                     .test("f16", {{GALLEY_I32, {37}, 0, 10}, {GALLEY_F16, {11, 67}}})
                                     .test("long", {{GALLEY_I32, {9}, 0, 6}, {GALLEY_BF16, {7, 1096}}})
                                     .test("aligned", {{GALLEY_I32, {50}, 0, 39}, {GALLEY_BF16, {40, 64}}}));

// ---- The table's gradient -------------------------------------------------------------------------------------------------------

void embedding_grad_shape(const Node& n, Shapes& out) {
  integers(n, 1, "ids");
  has_rows(n, 0, "dy");
  numbers(n, 0, "dy");
  one_a_row(n, 1, "ids", 0, "dy");
  const int64_t V = n.i("rows", 0);
  if (V <= 0) wrong(n, "the attribute 'rows' says how many rows the table has; it is missing");
  if (const int64_t padding = n.i("padding", -1); padding > V)
    wrong(n, "padding = " + std::to_string(padding) + "; it has to be one of the " + std::to_string(V) + " rows, or their number");
  out.set(0, n.dtype(GALLEY_F32), {V, columns(n.in(0))});
}

void embedding_grad_reference(const Node& n) {
  const double* dy = n.read<double>(0);
  const int32_t* ids = n.read<int32_t>(1);
  double* dtable = n.write<double>(0);
  const int64_t C = columns(n.in(0)), padding = n.i("padding", -1);
  for (int64_t i = 0; i < count(n.out(0)); ++i) dtable[i] = 0;
  for (int64_t r = 0; r < count(n.in(1)); ++r)
    for (int64_t c = 0; c < C && ids[r] != padding; ++c) dtable[ids[r] * C + c] += dy[r * C + c];
}

void embedding_grad_cost(const Node& n, galley_cost& cost) {
  const double C = static_cast<double>(columns(n.in(0))), R = static_cast<double>(count(n.in(1)));
  const double read = C * static_cast<double>(galley_dtype_bytes(n.in(0).dtype));
  const double row = C * static_cast<double>(galley_dtype_bytes(n.dtype(GALLEY_F32)));
  cost.bytes = R * (read + 2 * row + 4);
  if (!n.has_out(0) || !n.accumulates(0)) cost.bytes += static_cast<double>(n.i("rows", 0)) * row;
}

Op embedding_grad("embedding_grad", "dtable[ids[r]] += dy[r] in the order of r; dy (…, C), ids (…) I32, dtable (rows, C)");
const bool embedding_grad_added = add(
    embedding_grad.input("dy", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
        .input("ids", GALLEY_ROLE_ROWS, GALLEY_OPERAND_SAME_ROWS | GALLEY_OPERAND_NO_GRADIENT)
        .output("dtable", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE)
        .flags(GALLEY_OP_LOW)
        .attr("rows", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of the table")
        .integer("padding", -1, "the id of which nothing is added: a row, or `rows`; -1: none")
        .infer<embedding_grad_shape>()
        .cost<embedding_grad_cost>()
        .reference<embedding_grad_reference>()
        .test("small", {{GALLEY_F32, {2, 3, 4}}, {GALLEY_I32, {2, 3}, 0, 4}}, Attrs().i("rows", 5))
        .test("odd", {{GALLEY_F32, {37, 67}}, {GALLEY_I32, {37}, 0, 10}}, Attrs().i("rows", 11))
        .test("repeats", {{GALLEY_F32, {3, 50, 130}}, {GALLEY_I32, {3, 50}, 0, 2}}, Attrs().i("rows", 4))
        .test("wide", {{GALLEY_F32, {2, 9, 513}}, {GALLEY_I32, {2, 9}, 0, 299}}, Attrs().i("rows", 300))
        .test("bf16", {{GALLEY_BF16, {3, 50, 130}}, {GALLEY_I32, {3, 50}, 0, 2}}, Attrs().i("rows", 4))
        .test("f16_f16", {{GALLEY_F16, {3, 50, 130}}, {GALLEY_I32, {3, 50}, 0, 2}}, Attrs().i("rows", 4).s("dtype", "f16"))
        .test("f32_bf16", {{GALLEY_F32, {2, 9, 513}}, {GALLEY_I32, {2, 9}, 0, 299}}, Attrs().i("rows", 300).s("dtype", "bf16"))
        .test("no_padding", {{GALLEY_F32, {3, 50, 130}}, {GALLEY_I32, {3, 50}, 0, 2}}, Attrs().i("rows", 4).i("padding", 1))
        .test("no_padding_bf16", {{GALLEY_BF16, {37, 67}}, {GALLEY_I32, {37}, 0, 10}},
              Attrs().i("rows", 11).i("padding", 0).s("dtype", "bf16"))
        .test("all_padding", {{GALLEY_F32, {2600, 16}}, {GALLEY_I32, {2600}, 2, 2}}, Attrs().i("rows", 70).i("padding", 2))
        .test("no_row", {{GALLEY_F32, {3, 50, 130}}, {GALLEY_I32, {3, 50}, 0, 4}}, Attrs().i("rows", 4).i("padding", 4))
        .test("no_rows", {{GALLEY_F32, {2600, 16}}, {GALLEY_I32, {2600}, 30, 32}}, Attrs().i("rows", 32).i("padding", 32))
        .test("no_row_bf16", {{GALLEY_BF16, {37, 67}}, {GALLEY_I32, {37}, 0, 9}}, Attrs().i("rows", 9).i("padding", 9).s("dtype", "bf16"))
        // Long runs of one id; more ids than rows, of several digits.
        .test("padding", {{GALLEY_BF16, {2600, 16}}, {GALLEY_I32, {2600}, 2, 2}}, Attrs().i("rows", 70))
        .test("runs", {{GALLEY_F32, {1500, 24}}, {GALLEY_I32, {1500}, 0, 2}}, Attrs().i("rows", 3).s("dtype", "bf16"))
        .test("digits", {{GALLEY_F32, {1300, 9}}, {GALLEY_I32, {1300}, 0, 1499}}, Attrs().i("rows", 1500))
        .test("tiles", {{GALLEY_BF16, {1100, 264}}, {GALLEY_I32, {1100}, 0, 511}}, Attrs().i("rows", 512)));

}  // namespace
}  // namespace galley::models::embedding_op
