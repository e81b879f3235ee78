// The mean of a sequence's hidden states over the positions that a mask counts, as sentence embeddings are pooled: Reimers, Gurevych:
// "Sentence-BERT", 2019, arXiv:1908.10084. A sequence without such a position has the mean 0.
#include "ops/check.hpp"

namespace galley::models::mean_rows_op {
namespace {

using namespace sdk;

int64_t counted(const int32_t* mask, int64_t S) {
  int64_t positions = 0;
  for (int64_t s = 0; s < S; ++s) positions += mask[s] > 0;
  return positions;
}

void forward_shape(const Node& n, Shapes& out) {
  numbers(n, 0, "x");
  integers(n, 1, "mask");
  const galley_operand &x = n.in(0), &mask = n.in(1);
  if (x.rank != 3) wrong(n, "x is " + shape_text(x) + "; it has to be (B, S, C)");
  if (mask.rank != 2 || mask.shape[0] != x.shape[0] || mask.shape[1] != x.shape[1])
    wrong(n, "mask is " + shape_text(mask) + "; beside x " + shape_text(x) + " it has to be (" + std::to_string(x.shape[0]) + ", " +
                 std::to_string(x.shape[1]) + ")");
  out.set(0, n.dtype(x.dtype), {x.shape[0], x.shape[2]});
}
void forward_reference(const Node& n) {
  const double* x = n.read<double>(0);
  const int32_t* mask = n.read<int32_t>(1);
  const int64_t B = n.in(0).shape[0], S = n.in(0).shape[1], C = n.in(0).shape[2];
  for (int64_t b = 0; b < B; ++b) {
    const int64_t positions = counted(mask + b * S, S);
    for (int64_t c = 0; c < C; ++c) {
      double sum = 0;
      for (int64_t s = 0; s < S; ++s)
        if (mask[b * S + s] > 0) sum += x[(b * S + s) * C + c];
      n.write<double>(0)[b * C + c] = positions ? sum / static_cast<double>(positions) : 0;
    }
  }
}
void gradient(Backward& b) {
  if (!b.needs(0)) return;
  b.d_inputs[0] = b.graph.node("mean_rows_grad", nullptr, {b.d_outputs[0], b.node.inputs[1]}, {}, {b.d_inputs[0]}, {b.adds(0)})[0];
}

void backward_shape(const Node& n, Shapes& out) {
  numbers(n, 0, "dy");
  integers(n, 1, "mask");
  const galley_operand &dy = n.in(0), &mask = n.in(1);
  if (dy.rank != 2 || mask.rank != 2 || mask.shape[0] != dy.shape[0])
    wrong(n, "dy is " + shape_text(dy) + ", and mask " + shape_text(mask) + "; they have to be (B, C) and (B, S)");
  out.set(0, n.dtype(dy.dtype), {dy.shape[0], mask.shape[1], dy.shape[1]});
}
void backward_reference(const Node& n) {
  const double* dy = n.read<double>(0);
  const int32_t* mask = n.read<int32_t>(1);
  const int64_t B = n.in(0).shape[0], S = n.in(1).shape[1], C = n.in(0).shape[1];
  for (int64_t b = 0; b < B; ++b) {
    const auto positions = static_cast<double>(counted(mask + b * S, S));
    for (int64_t s = 0; s < S; ++s)
      for (int64_t c = 0; c < C; ++c) n.write<double>(0)[(b * S + s) * C + c] = mask[b * S + s] > 0 ? dy[b * C + c] / positions : 0;
  }
}

constexpr uint64_t any = GALLEY_OPERAND_ANY_DTYPE;

Op mean_rows("mean_rows", "y[b] = the mean of x[b, s] over s with mask[b, s] > 0, 0 without any; x (B, S, C), mask (B, S) I32, y (B, C)");
const bool forward_added = add(mean_rows.input("x", GALLEY_ROLE_WHOLE, any)
                                   .input("mask", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                                   .output("y", GALLEY_ROLE_WHOLE, any)
                                   .flags(GALLEY_OP_FULL)
                                   .infer<forward_shape>()
                                   .gradient<gradient>()
                                   .reference<forward_reference>()
                                   .test("small", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_I32, {2, 3}, 0, 1}})
                                   .test("odd", {{GALLEY_F32, {3, 37, 67}}, {GALLEY_I32, {3, 37}, -1, 1}})
                                   .test("empty", {{GALLEY_F32, {3, 4, 8}}, {GALLEY_I32, {3, 4}, -1, 0}})
                                   .test("long", {{GALLEY_F32, {2, 301, 384}}, {GALLEY_I32, {2, 301}, 0, 2}})
                                   .test("one_position", {{GALLEY_F32, {5, 1, 611}}, {GALLEY_I32, {5, 1}, 0, 1}})
                                   .test("bf16", {{GALLEY_BF16, {3, 37, 72}}, {GALLEY_I32, {3, 37}, 0, 1}})
                                   .test("f16", {{GALLEY_F16, {3, 37, 67}}, {GALLEY_I32, {3, 37}, 0, 1}})
                                   .test("bf16_f32", {{GALLEY_BF16, {2, 70, 33}}, {GALLEY_I32, {2, 70}, 0, 1}}, Attrs().s("dtype", "f32")));

Op mean_rows_grad("mean_rows_grad", "dx[b, s] = dy[b] / (how many mask[b, …] > 0) where mask[b, s] > 0, else 0; shapes as in mean_rows");
const bool backward_added = add(mean_rows_grad.input("dy", GALLEY_ROLE_WHOLE, any)
                                    .input("mask", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                                    .output("dx", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ACCUMULATES | any)
                                    .flags(GALLEY_OP_FULL)
                                    .infer<backward_shape>()
                                    .reference<backward_reference>()
                                    .test("small", {{GALLEY_F32, {2, 5}}, {GALLEY_I32, {2, 3}, 0, 1}})
                                    .test("odd", {{GALLEY_F32, {3, 67}}, {GALLEY_I32, {3, 37}, -1, 1}})
                                    .test("empty", {{GALLEY_F32, {3, 8}}, {GALLEY_I32, {3, 4}, -1, 0}})
                                    .test("long", {{GALLEY_F32, {2, 384}}, {GALLEY_I32, {2, 301}, 0, 2}})
                                    .test("bf16", {{GALLEY_BF16, {3, 72}}, {GALLEY_I32, {3, 37}, 0, 1}})
                                    .test("f16", {{GALLEY_F16, {3, 67}}, {GALLEY_I32, {3, 37}, 0, 1}})
                                    .test("f32_bf16", {{GALLEY_F32, {2, 611}}, {GALLEY_I32, {2, 70}, 0, 1}}, Attrs().s("dtype", "bf16")));

}  // namespace
}  // namespace galley::models::mean_rows_op
