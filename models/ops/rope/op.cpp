// Rotary position embedding: Su et al.: "RoFormer", 2021, arXiv:2104.09864. Pairs are (x[i], x[i + D/2]), as transformers' rotate_half has
// them.
//
// In a head at position p: y[i] = x[i]·cos − x[i + D/2]·sin,  y[i + D/2] = x[i + D/2]·cos + x[i]·sin, with cos and sin from row p of the
// table. A rotation is undone by turning back, so its gradient is the same op with inverse = 1. Columns of a head beyond the table's D
// stay as they are.
//
// Rows may hold heads that do not turn: of each run of `cycle` heads the first `turning` turn, the others are copied. So q and k turn where
// a product has made q, k and v, all heads of q first (cycle = heads = H + 2·KV, turning = H + KV) or head by head (cycle = 3, turning = 2).
#include "ops/rope/angles.hpp"

namespace galley::models::rope_op {
namespace {

using namespace sdk;

void rope_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "x");
  numbers(n, 0, "x");
  in_f32(n, 2, "table");
  integers(n, 1, "position_ids");
  one_a_row(n, 1, "position_ids", 0, "x");
  const galley_operand &x = n.in(0), &table = n.in(2);
  const int64_t H = n.i("heads", 0), D = n.i("head_dim", 0);
  if (H <= 0 || D <= 0 || H * D != columns(x))
    wrong(n, "rows of x " + shape_text(x) + " are not heads · head_dim = " + std::to_string(H) + " · " + std::to_string(D));
  const int64_t cycle = n.i("cycle", 1), turning = n.i("turning", 1);
  if (cycle < 1 || H % cycle || turning < 1 || turning > cycle)
    wrong(n, "of each " + std::to_string(cycle) + " of " + std::to_string(H) + " heads " + std::to_string(turning) +
                 " turn; cycle has to divide heads, and turning to be 1 to cycle");
  if (table.rank != 2 || columns(table) % 2 || columns(table) > D)
    wrong(n, "table is " + shape_text(table) +
                 "; it has to be (positions, an even number of columns up to head_dim = " + std::to_string(D) + ")");
  like_in_dtype(out, 0, n, x);
}

void rope_reference(const Node& n) {
  const double *x = n.read<double>(0), *table = n.read<double>(2);
  const int32_t* ids = n.read<int32_t>(1);
  double* y = n.write<double>(0);
  const int64_t H = n.i("heads", 0), D = n.i("head_dim", 0), T = columns(n.in(2));
  const int64_t cycle = n.i("cycle", 1), turning = n.i("turning", 1);
  const double sign = n.i("inverse", 0) ? -1 : 1;
  for (int64_t r = 0; r < rows(n.in(0)); ++r)
    for (int64_t h = 0; h < H; ++h) {
      const double* from = x + (r * H + h) * D;
      double* to = y + (r * H + h) * D;
      const int64_t turned = h % cycle < turning ? T : 0;
      for (int64_t i = 0; i < turned / 2; ++i) {
        const double cos = table[ids[r] * T + i], sin = sign * table[ids[r] * T + T / 2 + i], a = from[i], b = from[i + T / 2];
        to[i] = a * cos - b * sin;
        to[i + T / 2] = b * cos + a * sin;
      }
      for (int64_t i = turned; i < D; ++i) to[i] = from[i];
    }
}

void rope_gradient(Backward& b) {
  if (!b.needs(0)) return;
  int64_t H = 0, D = 0, inverse = 0;
  if (const galley_attr* a = b.attr("heads")) H = *static_cast<const int64_t*>(a->data);
  if (const galley_attr* a = b.attr("head_dim")) D = *static_cast<const int64_t*>(a->data);
  if (const galley_attr* a = b.attr("inverse")) inverse = *static_cast<const int64_t*>(a->data);
  Attrs attrs;
  attrs.i("heads", H).i("head_dim", D).i("inverse", !inverse);
  for (const char* name : {"cycle", "turning"})
    if (const galley_attr* a = b.attr(name)) attrs.copy(*a);
  b.d_inputs[0] =
      b.graph.node("rope", nullptr, {b.d_outputs[0], b.node.inputs[1], b.node.inputs[2]}, attrs, {b.d_inputs[0]}, {b.adds(0)})[0];
}

Op rope("rope",
        "turns each head of x by its row's position; x (…, heads·head_dim), position_ids (…) I32, table (P, D): cos then sin, y like x");
const bool rope_added = add(
    rope.input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_COMPUTE)
        .input("position_ids", GALLEY_ROLE_ROWS, GALLEY_OPERAND_SAME_ROWS | GALLEY_OPERAND_NO_GRADIENT)
        .input("table", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
        .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE, 0)
        .attr("heads", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "in a row of x")
        .attr("head_dim", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "elements of a head")
        .integer("inverse", 0, "1: turns back, which is the gradient")
        .integer("cycle", 1, "heads of a run, of which the first turn and the others are copied")
        .integer("turning", 1, "how many heads of each run turn")
        .infer<rope_shape>()
        .gradient<rope_gradient>()
        .reference<rope_reference>()
        .test("small", {{GALLEY_F32, {2, 3, 8}}, {GALLEY_I32, {2, 3}, 0, 4}, {GALLEY_F32, {5, 4}}}, Attrs().i("heads", 2).i("head_dim", 4))
        .test("odd", {{GALLEY_F32, {37, 66}}, {GALLEY_I32, {37}, 0, 10}, {GALLEY_F32, {11, 22}}}, Attrs().i("heads", 3).i("head_dim", 22))
        .test("inverse", {{GALLEY_F32, {2, 5, 192}}, {GALLEY_I32, {2, 5}, 0, 6}, {GALLEY_F32, {7, 64}}},
              Attrs().i("heads", 3).i("head_dim", 64).i("inverse", 1))
        .test("partial", {{GALLEY_F32, {9, 60}}, {GALLEY_I32, {9}, 0, 6}, {GALLEY_F32, {7, 6}}}, Attrs().i("heads", 4).i("head_dim", 15))
        .test("bf16", {{GALLEY_BF16, {2, 5, 192}}, {GALLEY_I32, {2, 5}, 0, 6}, {GALLEY_F32, {7, 64}}},
              Attrs().i("heads", 3).i("head_dim", 64))
        .test("f16", {{GALLEY_F16, {9, 60}}, {GALLEY_I32, {9}, 0, 6}, {GALLEY_F32, {7, 6}}}, Attrs().i("heads", 4).i("head_dim", 15))
        .test("bf16_f32", {{GALLEY_BF16, {9, 60}}, {GALLEY_I32, {9}, 0, 6}, {GALLEY_F32, {7, 6}}},
              Attrs().i("heads", 4).i("head_dim", 15).s("dtype", "f32"))
        .test("packed", {{GALLEY_F32, {2, 5, 112}}, {GALLEY_I32, {2, 5}, 0, 6}, {GALLEY_F32, {7, 14}}},
              Attrs().i("heads", 8).i("head_dim", 14).i("cycle", 8).i("turning", 6))
        .test("by_head", {{GALLEY_F32, {9, 135}}, {GALLEY_I32, {9}, 0, 6}, {GALLEY_F32, {7, 6}}},
              Attrs().i("heads", 9).i("head_dim", 15).i("cycle", 3).i("turning", 2))
        .test("by_head_inverse", {{GALLEY_BF16, {2, 5, 192}}, {GALLEY_I32, {2, 5}, 0, 6}, {GALLEY_F32, {7, 16}}},
              Attrs().i("heads", 6).i("head_dim", 32).i("cycle", 3).i("turning", 2).i("inverse", 1))
        .test("packed_f16", {{GALLEY_F16, {9, 60}}, {GALLEY_I32, {9}, 0, 6}, {GALLEY_F32, {7, 12}}},
              Attrs().i("heads", 5).i("head_dim", 12).i("cycle", 5).i("turning", 4))
        .test("many_heads", {{GALLEY_F32, {150, 112}}, {GALLEY_I32, {150}, 0, 6}, {GALLEY_F32, {7, 16}}},
              Attrs().i("heads", 7).i("head_dim", 16)));

// ---- The table ------------------------------------------------------------------------------------------------------------------

void table_shape(const Node& n, Shapes& out) {
  const int64_t P = n.i("positions", 0);
  if (P <= 0) wrong(n, "positions = " + std::to_string(P) + "; it has to be positive");
  rope_tables(n, [&](const Angles& angles, int64_t, int64_t) { out.set(0, GALLEY_F32, {P, angles.D}); });
}

void table_reference(const Node& n) {
  rope_tables(n, [&](const Angles& angles, int64_t first, int64_t rows) {
    const int64_t D = angles.D;
    double* to = n.write<double>(0) + first * D;
    for (int64_t p = 0; p < rows; ++p, to += D)
      for (int64_t i = 0; i < D / 2; ++i) {
        to[i] = angles.size * std::cos(static_cast<double>(p) * angles(i));
        to[D / 2 + i] = angles.size * std::sin(static_cast<double>(p) * angles(i));
      }
  });
}

Op rope_table("rope_table",
              "cos and sin of position · angle, times attention_factor, (positions, head_dim); type says how angles are stretched");
const bool rope_table_added = add(
    rope_table.flags(GALLEY_OP_PRIVATE)
        .output("table", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
        .attr("positions", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "rows of the table")
        .attr("head_dim", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "elements of a head that turn: even")
        .string("type", "default", "how it is stretched to longer texts: default, linear, llama3, yarn, longrope or dynamic")
        .number("theta", 10000, "the base of the wavelengths")
        .number("factor", 1, "by which texts are longer")
        .number("low_freq_factor", 1, "of llama3")
        .number("high_freq_factor", 4, "of llama3")
        .number("original_max_position", 8192, "of llama3, yarn, longrope and dynamic: the longest text before")
        .attr("attention_factor", GALLEY_ATTR_F64, 0,
              "what cos and sin are multiplied by; without it, yarn and longrope take what their authors recommend, others 1")
        .number("beta_fast", 32, "of yarn: turns in original_max_position positions from which on an angle is kept")
        .number("beta_slow", 1, "of yarn: turns up to which it is divided by factor")
        .number("mscale", 0, "of yarn: for attention_factor, where mscale_all_dim is given too")
        .number("mscale_all_dim", 0, "of yarn: likewise")
        .integer("truncate", 1, "of yarn: 1: angles change between whole pairs")
        .attr("factors", GALLEY_ATTR_F64, GALLEY_ATTR_LIST, "of longrope: what each of head_dim / 2 angles is divided by")
        .attr("long_factors", GALLEY_ATTR_F64, GALLEY_ATTR_LIST,
              "of longrope: the second half of the rows is a table of its own, by these instead of factors")
        .integer("seq_len", 0, "of dynamic: positions of a row")
        .infer<table_shape>()
        .reference<table_reference>()
        .test("default", {}, Attrs().i("positions", 300).i("head_dim", 64))
        .test("long", {}, Attrs().i("positions", 7).i("head_dim", 530))
        .test("linear", {}, Attrs().i("positions", 77).i("head_dim", 6).s("type", "linear").f("factor", 4).f("theta", 500000))
        .test("llama3", {},
              Attrs()
                  .i("positions", 600)
                  .i("head_dim", 64)
                  .f("theta", 500000)
                  .s("type", "llama3")
                  .f("factor", 32)
                  .f("low_freq_factor", 1)
                  .f("high_freq_factor", 4)
                  .i("original_max_position", 8192))
        .test("yarn", {}, Attrs().i("positions", 600).i("head_dim", 64).s("type", "yarn").f("factor", 16).i("original_max_position", 4096))
        .test("yarn_mscale", {},
              Attrs()
                  .i("positions", 77)
                  .i("head_dim", 30)
                  .s("type", "yarn")
                  .f("factor", 40)
                  .i("original_max_position", 4096)
                  .f("mscale", 0.7)
                  .f("mscale_all_dim", 1)
                  .i("truncate", 0))
        .test(
            "longrope", {},
            Attrs().i("positions", 77).i("head_dim", 6).s("type", "longrope").numbers("factors", {1, 1.25, 40}).f("attention_factor", 1.19))
        .test("longrope_both", {},
              Attrs()
                  .i("positions", 154)
                  .i("head_dim", 6)
                  .s("type", "longrope")
                  .numbers("factors", {1, 1.25, 40})
                  .numbers("long_factors", {2, 3.5, 70})
                  .f("factor", 8)
                  .f("original_max_position", 40))
        .test("dynamic", {},
              Attrs()
                  .i("positions", 300)
                  .i("head_dim", 64)
                  .s("type", "dynamic")
                  .f("factor", 2)
                  .i("original_max_position", 100)
                  .i("seq_len", 300)));

}  // namespace
}  // namespace galley::models::rope_op
