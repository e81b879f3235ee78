// Dropout: Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, JMLR 15, 2014: y = x / (1 − p) where a draw keeps the element, else 0.
//
// The draw is keyed by (seed, window, row in the window, position, the node's stream) and counted by column (philox.h): recomputation and
// backward repeat the mask, and neither the size of a micro-batch nor a chunk of rows changes it. Backward is the same node on dy, with
// the stream of the forward one.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::dropout_op {
namespace {

using namespace sdk;

void shape(const Node& n, Shapes& out) {
  const double p = n.f("p", 0.5);
  if (!(p >= 0 && p <= 1)) wrong(n, "p = " + std::to_string(p) + "; it has to be between 0 and 1");
  has_rows(n, 0, "x");
  numbers(n, 0, "x");
  const galley_operand& random = n.in(1);
  if (random.dtype != GALLEY_I64 || count(random) != 4) wrong(n, "random has to be I64 (4): seed, window, first row, 0");
  like_in_dtype(out, 0, n, n.in(0));
}

void reference(const Node& n) {
  const double *x = n.read<double>(0), p = n.f("p", 0.5);
  const int64_t* random = n.read<int64_t>(1);
  double* y = n.write<double>(0);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0)), S = row_length(n);
  const uint64_t key = galley_random_key(random, n.stream());
  for (int64_t r = 0; r < R; ++r) {
    const int64_t row = n.view()->first_row + r;
    for (int64_t c = 0; c < C; ++c) {
      const galley_philox_block b = galley_random_block(key, random[2] + (S ? row / S : 0), S ? row % S : row, c / 4);
      const bool keep = !n.training() || galley_uniform(b.word[c % 4]) >= p;
      y[r * C + c] = keep ? (n.training() ? x[r * C + c] / (1 - p) : x[r * C + c]) : 0;
    }
  }
}

void gradient(Backward& b) {
  if (!b.needs(0)) return;
  const galley_attr *p = b.attr("p"), *stream = b.attr("stream"), *length = b.attr("length");
  Attrs attrs;
  if (p) attrs.copy(*p);
  if (length) attrs.copy(*length);
  if (stream) attrs.copy(*stream);
  else attrs.s("stream", b.node.name);
  const std::string name = std::string(b.node.name) + ".grad";
  b.d_inputs[0] = b.graph.node("dropout", name.c_str(), {b.d_outputs[0], b.node.inputs[1]}, attrs, {b.d_inputs[0]}, {b.adds(0)})[0];
}

Op dropout("dropout", "y = x / (1 - p) where a draw keeps the element, else 0; x (…, C), random I64 (4)");
const bool added =
    add(dropout.input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_COMPUTE)
            .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE, 0)
            .flags(GALLEY_OP_RANDOM | GALLEY_OP_TRAINING_ONLY)
            .number("p", 0.5, "the probability of dropping an element")
            .attr("length", GALLEY_ATTR_I64, 0, "positions of a row of the batch; without it, what x (B, positions, C) says, or the recipe")
            .infer<shape>()
            .gradient<gradient>()
            .reference<reference>()
            .test("small", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().f("p", 0.5), 3)
            .test("odd", {{GALLEY_F32, {4, 9, 67}}, {GALLEY_I64, {4}, 0, 1000000}}, Attrs().f("p", 0.1), 9)
            .test("wide", {{GALLEY_F32, {3, 1031}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().f("p", 0.9).s("stream", "another"))
            .test("none", {{GALLEY_F32, {3, 40}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().f("p", 0.0))
            .test("evaluation", {{GALLEY_F32, {3, 40}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().f("p", 0.5), 0, 0)
            .test("bf16", {{GALLEY_BF16, {4, 9, 667}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().f("p", 0.1), 9)
            .test("f16", {{GALLEY_F16, {4, 9, 67}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().f("p", 0.1), 9)
            .test("bf16_f32", {{GALLEY_BF16, {3, 40}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().f("p", 0.2).s("dtype", "f32"))
            .test("bf16_none", {{GALLEY_BF16, {3, 40}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().f("p", 0.0)));

}  // namespace
}  // namespace galley::models::dropout_op
