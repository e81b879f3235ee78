// Some rows of a table trained alone, in the place of the table's own: PEFT's trainable tokens. `tokens` (n) says whose rows they are, each
// once, in the order of `rows` (n, C):
//
//   y = rows[j] where the id is tokens[j], x elsewhere   put_token_rows, after a look-up; without rows, zeros: its gradient to x
//   j where the id is tokens[j], n elsewhere             token_slots: by these embedding_grad adds up the gradient of rows
//   y = x, and its columns `tokens` are z (…, n)         put_token_columns, after a head, z = x·rowsᵀ; without z, zeros
//   z = the columns `tokens` of x                        take_token_columns, the gradient to z
//   a table, and its rows `tokens` are `rows`            set_token_rows, where the model is saved as one
//   tokens                                               token_list, once while the run is loaded
//
// The table itself takes part in nothing that is trained: no gradient of its size, and no product but the model's own.
#include <algorithm>

#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

[[noreturn]] void refuse_operand(const Node& node, const std::string& what) {
  invalid(std::string(node.name()) + ": " + node.view()->op + ": " + what);
}

void of_numbers(const Node& node, uint32_t i, const char* name) {
  const galley_operand& x = node.in(i);
  if (x.rank == 0 || (x.dtype != GALLEY_F32 && x.dtype != GALLEY_BF16 && x.dtype != GALLEY_F16))
    refuse_operand(node, std::string(name) + " has to hold numbers");
}

void of_ids(const Node& node, uint32_t i, const char* name) {
  if (node.in(i).dtype != GALLEY_I32) refuse_operand(node, std::string(name) + " has to be I32");
}

/// How many tokens there are.
int64_t tokens_at(const Node& node, uint32_t i) {
  of_ids(node, i, "tokens");
  if (node.in(i).rank != 1) refuse_operand(node, "tokens is " + shape_text(node.in(i)) + "; it has to be (n)");
  return count(node.in(i));
}

void check_rows(const Node& node, uint32_t i, int64_t n, int64_t C) {
  if (!node.has(i)) return;
  of_numbers(node, i, "rows");
  if (node.in(i).rank != 2 || node.in(i).shape[0] != n || columns(node.in(i)) != C)
    refuse_operand(node, "rows is " + shape_text(node.in(i)) + "; it has to be (" + std::to_string(n) + ", " + std::to_string(C) + ")");
}

/// The place of an id among the tokens; as many as there are where it is none.
int64_t slot_of(const Node& node, uint32_t tokens, int64_t id) {
  const auto* const first = node.read<int32_t>(tokens);
  return std::find(first, first + count(node.in(tokens)), id) - first;
}

constexpr uint32_t kF = GALLEY_F32, kB = GALLEY_BF16, kH = GALLEY_F16, kI = GALLEY_I32;
constexpr uint64_t kAny = GALLEY_OPERAND_ANY_DTYPE, kIds = GALLEY_OPERAND_NO_GRADIENT, kOptional = GALLEY_OPERAND_OPTIONAL;

// ---- put_token_rows -------------------------------------------------------------------------------------------------------------------

void put_token_rows_shape(const Node& node, Shapes& out) {
  of_numbers(node, 0, "x");
  of_ids(node, 1, "ids");
  const galley_operand& x = node.in(0);
  if (count(node.in(1)) != rows(x))
    refuse_operand(
        node, "ids is " + shape_text(node.in(1)) + "; beside x " + shape_text(x) + " it has to have " + std::to_string(rows(x)) + " ids");
  check_rows(node, 3, tokens_at(node, 2), columns(x));
  out.set(0, node.dtype(x.dtype), x.shape, x.rank);
}

void put_token_rows_reference(const Node& node) {
  const int64_t C = columns(node.in(0)), n = count(node.in(2));
  for (int64_t r = 0; r < rows(node.in(0)); ++r) {
    const int64_t slot = slot_of(node, 2, node.read<int32_t>(1)[r]);
    for (int64_t c = 0; c < C; ++c)
      node.write<double>(0)[r * C + c] = slot == n ? node.read<double>(0)[r * C + c] : node.has(3) ? node.read<double>(3)[slot * C + c] : 0;
  }
}

void put_token_rows_gradient(Backward& b) {
  const galley_tensor ids = b.node.inputs[1], tokens = b.node.inputs[2], dy = b.d_outputs[0];
  const std::string name = b.node.name;
  if (b.needs(3)) {
    const int64_t n = b.graph.info(tokens).shape[0];
    Attrs attrs;
    if (const galley_attr* padding = b.attr("padding")) attrs.copy(*padding);
    const galley_tensor slots = b.graph.node("token_slots", (name + ".slots").c_str(), {ids, tokens}, attrs)[0];
    b.d_inputs[3] = b.graph.node("embedding_grad", (name + ".drows").c_str(), {dy, slots}, Attrs().i("rows", n).i("padding", n),
                                 {b.d_inputs[3]}, {b.adds(3)})[0];
  }
  // After the others, so that it may take the place of dy.
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("put_token_rows", (name + ".dx").c_str(), {dy, ids, tokens})[0];
}

Op put_token_rows("put_token_rows",
                  "y[r] = rows[j] where ids[r] = tokens[j], else x[r]; x, y (…, C), ids (…) I32, tokens (n) I32, rows (n, C)");
const bool put_token_rows_added =
    add(put_token_rows.flags(GALLEY_OP_PRIVATE)
            .input("x", GALLEY_ROLE_ROWS, kAny)
            .input("ids", GALLEY_ROLE_ROWS, GALLEY_OPERAND_SAME_ROWS | kIds)
            .input("tokens", GALLEY_ROLE_WHOLE, kIds)
            .input("rows", GALLEY_ROLE_WHOLE, kOptional | kAny)
            .output("y", GALLEY_ROLE_ROWS, kAny, 0)
            .attr("padding", GALLEY_ATTR_I64, GALLEY_ATTR_STOPS, "an id whose row of `rows` gets no gradient")
            .infer<put_token_rows_shape>()
            .gradient<put_token_rows_gradient>()
            .reference<put_token_rows_reference>()
            .test("small", {{kF, {2, 3, 5}}, {kI, {2, 3}, 0, 4}, {kI, {1}, 2, 2}, {kF, {1, 5}}})
            .test("odd", {{kF, {37, 67}}, {kI, {37}, 0, 3}, {kI, {1}, 3, 3}, {kF, {1, 67}}})
            .test("all", {{kF, {5, 130}}, {kI, {5}, 7, 7}, {kI, {1}, 7, 7}, {kF, {1, 130}}})
            .test("nothing", {{kF, {5, 130}}, {kI, {5}, 0, 6}, {kI, {1}, 7, 7}, {kF, {1, 130}}})
            .test("many", {{kF, {300, 513}}, {kI, {300}, 0, 60}, {kI, {40}, 0, 999}, {kF, {40, 513}}})
            .test("zeros", {{kF, {37, 1031}}, {kI, {37}, 0, 3}, {kI, {1}, 3, 3}, {0, {}}})
            .test("bf16", {{kB, {37, 671}}, {kI, {37}, 0, 2}, {kI, {1}, 1, 1}, {kF, {1, 671}}})
            .test("f16", {{kH, {37, 64}}, {kI, {37}, 0, 2}, {kI, {1}, 1, 1}, {kH, {1, 64}}})
            .test("f32 to bf16", {{kF, {37, 64}}, {kI, {37}, 0, 2}, {kI, {1}, 1, 1}, {kF, {1, 64}}}, Attrs().s("dtype", "bf16")));

// ---- token_slots ----------------------------------------------------------------------------------------------------------------------

void token_slots_shape(const Node& node, Shapes& out) {
  of_ids(node, 0, "ids");
  tokens_at(node, 1);
  out.set(0, GALLEY_I32, node.in(0).shape, node.in(0).rank);
}

void token_slots_reference(const Node& node) {
  const int64_t padding = node.i("padding", -1), n = count(node.in(1));
  for (int64_t r = 0; r < count(node.in(0)); ++r) {
    const int32_t id = node.read<int32_t>(0)[r];
    node.write<int32_t>(0)[r] = static_cast<int32_t>(id == padding ? n : slot_of(node, 1, id));
  }
}

Op token_slots("token_slots", "slots[r] = j where ids[r] = tokens[j], else n; ids, slots (…) I32, tokens (n) I32");
const bool token_slots_added = add(token_slots.flags(GALLEY_OP_PRIVATE)
                                       .input("ids", GALLEY_ROLE_ROWS, GALLEY_OPERAND_SAME_ROWS | kIds)
                                       .input("tokens", GALLEY_ROLE_WHOLE, kIds)
                                       .output("slots", GALLEY_ROLE_ROWS, GALLEY_OPERAND_SAME_ROWS)
                                       .integer("padding", -1, "an id that has no slot; -1: none")
                                       .infer<token_slots_shape>()
                                       .reference<token_slots_reference>()
                                       .test("small", {{kI, {2, 3}, 0, 4}, {kI, {1}, 2, 2}})
                                       .test("odd", {{kI, {37}, 0, 5}, {kI, {1}, 4, 4}})
                                       .test("many", {{kI, {3, 517}, 0, 60}, {kI, {40}, 0, 999}})
                                       .test("padding", {{kI, {1300}, 0, 3}, {kI, {1}, 3, 3}}, Attrs().i("padding", 3)));

// ---- put_token_columns and take_token_columns -----------------------------------------------------------------------------------------

void put_token_columns_shape(const Node& node, Shapes& out) {
  of_numbers(node, 0, "x");
  const galley_operand& x = node.in(0);
  const int64_t n = tokens_at(node, 1);
  if (node.has(2)) of_numbers(node, 2, "z");
  if (node.has(2) && (rows(node.in(2)) != rows(x) || columns(node.in(2)) != n))
    refuse_operand(node, "z is " + shape_text(node.in(2)) + "; beside x " + shape_text(x) + " it has to have " + std::to_string(rows(x)) +
                             " rows of " + std::to_string(n));
  out.set(0, node.dtype(x.dtype), x.shape, x.rank);
}

void put_token_columns_reference(const Node& node) {
  const int64_t V = columns(node.in(0)), n = count(node.in(1));
  for (int64_t r = 0; r < rows(node.in(0)); ++r) {
    std::copy_n(node.read<double>(0) + r * V, V, node.write<double>(0) + r * V);
    for (int64_t j = 0; j < n; ++j)
      node.write<double>(0)[r * V + node.read<int32_t>(1)[j]] = node.has(2) ? node.read<double>(2)[r * n + j] : 0;
  }
}

void put_token_columns_gradient(Backward& b) {
  const galley_tensor tokens = b.node.inputs[1], dy = b.d_outputs[0];
  const std::string name = b.node.name;
  if (b.needs(2))
    b.d_inputs[2] = b.graph.node("take_token_columns", (name + ".dz").c_str(), {dy, tokens}, {}, {b.d_inputs[2]}, {b.adds(2)})[0];
  // After the other, so that it may take the place of dy.
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("put_token_columns", (name + ".dx").c_str(), {dy, tokens})[0];
}

Op put_token_columns("put_token_columns", "y = x, and y[r, tokens[j]] = z[r, j]; x, y (…, V), tokens (n) I32, z (…, n)");
const bool put_token_columns_added =
    add(put_token_columns.flags(GALLEY_OP_PRIVATE)
            .input("x", GALLEY_ROLE_ROWS, kAny)
            .input("tokens", GALLEY_ROLE_WHOLE, kIds)
            .input("z", GALLEY_ROLE_ROWS, kOptional | kAny)
            .output("y", GALLEY_ROLE_ROWS, kAny, 0)
            .infer<put_token_columns_shape>()
            .gradient<put_token_columns_gradient>()
            .reference<put_token_columns_reference>()
            .test("small", {{kF, {2, 3, 5}}, {kI, {1}, 2, 2}, {kF, {2, 3, 1}}})
            .test("first", {{kF, {37, 67}}, {kI, {1}, 0, 0}, {kF, {37, 1}}})
            .test("last", {{kF, {3, 1031}}, {kI, {1}, 1030, 1030}, {kF, {3, 1}}})
            .test("zeros", {{kF, {37, 67}}, {kI, {1}, 5, 5}, {0, {}}})
            .test("bf16", {{kB, {37, 671}}, {kI, {1}, 1, 1}, {kF, {37, 1}}})
            .test("f16", {{kH, {37, 64}}, {kI, {1}, 1, 1}, {kH, {37, 1}}})
            .test("f32 to bf16", {{kF, {37, 64}}, {kI, {1}, 63, 63}, {kB, {37, 1}}}, Attrs().s("dtype", "bf16")));

void take_token_columns_shape(const Node& node, Shapes& out) {
  of_numbers(node, 0, "x");
  const galley_operand& x = node.in(0);
  int64_t shape[GALLEY_MAX_RANK];
  std::copy_n(x.shape, x.rank, shape);
  shape[x.rank - 1] = tokens_at(node, 1);
  out.set(0, node.dtype(x.dtype), shape, x.rank);
}

void take_token_columns_reference(const Node& node) {
  const int64_t V = columns(node.in(0)), n = count(node.in(1));
  for (int64_t r = 0; r < rows(node.in(0)); ++r)
    for (int64_t j = 0; j < n; ++j) node.write<double>(0)[r * n + j] = node.read<double>(0)[r * V + node.read<int32_t>(1)[j]];
}

Op take_token_columns("take_token_columns", "z[r, j] = x[r, tokens[j]]; x (…, V), tokens (n) I32, z (…, n)");
const bool take_token_columns_added = add(take_token_columns.flags(GALLEY_OP_PRIVATE)
                                              .input("x", GALLEY_ROLE_ROWS, kAny)
                                              .input("tokens", GALLEY_ROLE_WHOLE, kIds)
                                              .output("z", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | kAny)
                                              .infer<take_token_columns_shape>()
                                              .reference<take_token_columns_reference>()
                                              .test("small", {{kF, {2, 3, 5}}, {kI, {2}, 0, 4}})
                                              .test("odd", {{kF, {37, 67}}, {kI, {31}, 0, 66}})
                                              .test("many", {{kF, {7, 1031}}, {kI, {600}, 0, 1030}})
                                              .test("bf16", {{kB, {37, 67}}, {kI, {5}, 0, 66}})
                                              .test("f16 to f32", {{kH, {37, 64}}, {kI, {5}, 0, 63}}, Attrs().s("dtype", "f32"))
                                              .test("f32 to bf16", {{kF, {37, 64}}, {kI, {5}, 0, 63}}, Attrs().s("dtype", "bf16")));

// ---- set_token_rows -------------------------------------------------------------------------------------------------------------------

void set_token_rows_shape(const Node& node, Shapes& out) {
  of_numbers(node, 0, "table");
  const galley_operand& table = node.in(0);
  if (table.rank != 2) refuse_operand(node, "table is " + shape_text(table) + "; it has to be (V, C)");
  check_rows(node, 2, tokens_at(node, 1), columns(table));
  out.set(0, node.dtype(table.dtype), table.shape, table.rank);
}

void set_token_rows_reference(const Node& node) {
  const int64_t C = columns(node.in(0));
  std::copy_n(node.read<double>(0), count(node.in(0)), node.write<double>(0));
  for (int64_t j = 0; j < count(node.in(1)); ++j)
    std::copy_n(node.read<double>(2) + j * C, C, node.write<double>(0) + node.read<int32_t>(1)[j] * C);
}

Op set_token_rows("set_token_rows", "y = table, and y[tokens[j]] = rows[j]; table, y (V, C), tokens (n) I32, rows (n, C)");
const bool set_token_rows_added = add(set_token_rows.flags(GALLEY_OP_PRIVATE)
                                          .input("table", GALLEY_ROLE_WHOLE, kAny | kIds)
                                          .input("tokens", GALLEY_ROLE_WHOLE, kIds)
                                          .input("rows", GALLEY_ROLE_WHOLE, kAny | kIds)
                                          .output("y", GALLEY_ROLE_WHOLE, kAny, 0)
                                          .infer<set_token_rows_shape>()
                                          .reference<set_token_rows_reference>()
                                          .test("small", {{kF, {7, 5}}, {kI, {1}, 6, 6}, {kF, {1, 5}}})
                                          .test("wide", {{kF, {37, 1031}}, {kI, {1}, 0, 0}, {kF, {1, 1031}}})
                                          .test("bf16", {{kB, {37, 671}}, {kI, {1}, 4, 4}, {kF, {1, 671}}})
                                          .test("f32 to f16", {{kF, {37, 64}}, {kI, {1}, 4, 4}, {kF, {1, 64}}}, Attrs().s("dtype", "f16")));

// ---- token_list -----------------------------------------------------------------------------------------------------------------------

void token_list_shape(const Node& node, Shapes& out) {
  const galley_attr* tokens = galley_attr_find(node.view(), "tokens");
  out.set(0, GALLEY_I32, {tokens ? tokens->count : 0});
}

void token_list_reference(const Node& node) {
  const auto* const tokens = static_cast<const int64_t*>(galley_attr_find(node.view(), "tokens")->data);
  std::transform(tokens, tokens + count(node.out(0)), node.write<int32_t>(0), [](int64_t id) { return static_cast<int32_t>(id); });
}

Op token_list("token_list", "ids of a list, in order, I32");
const bool token_list_added = add(token_list.flags(GALLEY_OP_PRIVATE | GALLEY_OP_LOAD_ON_HOST)
                                      .output("y", GALLEY_ROLE_WHOLE)
                                      .attr("tokens", GALLEY_ATTR_I64, GALLEY_ATTR_LIST | GALLEY_ATTR_REQUIRED, "the ids")
                                      .infer<token_list_shape>()
                                      .reference<token_list_reference>()
                                      .test("small", {}, Attrs().list("tokens", {5, 3, 2000000000, 0})));

}  // namespace
