// Softmax and negative log likelihood of one label a row. The loss is the sum over the rows that count (label ≥ 0; −100 by custom marks
// the others); dividing by the window's tokens is in the seed, so that gradients come out final.
#include <algorithm>
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::cross_entropy_op {
namespace {

using namespace sdk;

/// Logits in F32, and a label for each row of them.
void check_labels(const Node& n) {
  has_rows(n, 0, "logits");
  in_f32(n, 0, "logits");
  integers(n, 1, "labels");
  one_a_row(n, 1, "labels", 0, "logits");
}

void forward_shape(const Node& n, Shapes& out) {
  check_labels(n);
  out.set(0, GALLEY_F64, {1});
  like_rows(out, 1, GALLEY_F32, n.in(0));
}

double log_sum_exp(const double* x, int64_t V) {
  double largest = x[0];
  for (int64_t v = 1; v < V; ++v) largest = std::fmax(largest, x[v]);
  double sum = std::exp(x[0] - largest);
  for (int64_t v = 1; v < V; ++v) sum += std::exp(x[v] - largest);
  return largest + std::log(sum);
}

void forward_reference(const Node& n) {
  const double* logits = n.read<double>(0);
  const int32_t* labels = n.read<int32_t>(1);
  double *loss = n.write<double>(0), *lse = n.write<double>(1);
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  *loss = 0;
  for (int64_t r = 0; r < R; ++r) {
    lse[r] = log_sum_exp(logits + r * V, V);
    if (labels[r] >= 0) *loss += lse[r] - logits[r * V + labels[r]];
  }
}

// Differentiation starts here: the seed stands for the gradient of the loss.
void gradient(Backward& b) {
  if (!b.needs(0)) return;
  b.d_inputs[0] = b.graph.node("cross_entropy_grad", nullptr,
                               {b.node.inputs[0], b.node.inputs[1], b.node.outputs[1], b.graph.scalar(GALLEY_SCALAR_LOSS_SEED)}, {},
                               {b.d_inputs[0]}, {b.adds(0)})[0];
}

constexpr uint64_t a_row = GALLEY_OPERAND_SAME_ROWS | GALLEY_OPERAND_NO_GRADIENT;

Op cross_entropy(
    "cross_entropy",
    "loss = Σ over rows with label ≥ 0 of lse - logits[label]; logits (…, V), labels (…) I32, loss F64 (1), lse (…) = log Σ exp");
const bool forward_added = add(cross_entropy.input("logits", GALLEY_ROLE_ROWS)
                                   .input("labels", GALLEY_ROLE_ROWS, a_row)
                                   .output("loss", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES)
                                   .output("lse", GALLEY_ROLE_ROWS, a_row)
                                   .flags(GALLEY_OP_LOSS | GALLEY_OP_FULL)
                                   .infer<forward_shape>()
                                   .gradient<gradient>()
                                   .reference<forward_reference>()
                                   .test("small", {{GALLEY_F32, {2, 3, 5}, -3, 3}, {GALLEY_I32, {2, 3}, -2, 4}})
                                   .test("odd", {{GALLEY_F32, {37, 67}, -10, 10}, {GALLEY_I32, {37}, -30, 66}})
                                   .test("none_counted", {{GALLEY_F32, {4, 33}}, {GALLEY_I32, {4}, -100, -100}})
                                   .test("far_from_zero", {{GALLEY_F32, {3, 33}, 500, 520}, {GALLEY_I32, {3}, 0, 32}})
                                   .test("tall", {{GALLEY_F32, {1100, 3}, -10, 10}, {GALLEY_I32, {1100}, -1, 2}})
                                   .test("wide", {{GALLEY_F32, {3, 5003}, -10, 10}, {GALLEY_I32, {3}, 0, 5002}}));

void backward_shape(const Node& n, Shapes& out) {
  check_labels(n);
  one_a_row(n, 2, "lse", 0, "logits");
  single(n, 3, "seed");
  in_f32(n, 2, "lse");
  in_f32(n, 3, "seed");
  like_in_dtype(out, 0, n, n.in(0));
}

void backward_reference(const Node& n) {
  const double *logits = n.read<double>(0), *lse = n.read<double>(2), seed = *n.read<double>(3);
  const int32_t* labels = n.read<int32_t>(1);
  double* d = n.write<double>(0);
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  for (int64_t r = 0; r < R; ++r)
    for (int64_t v = 0; v < V; ++v) d[r * V + v] = labels[r] < 0 ? 0 : (std::exp(logits[r * V + v] - lse[r]) - (v == labels[r])) * seed;
}

Op cross_entropy_grad("cross_entropy_grad", "dlogits = (exp(logits - lse) - onehot(label)) · seed, 0 where label < 0");
const bool backward_added =
    add(cross_entropy_grad.input("logits", GALLEY_ROLE_ROWS)
            .input("labels", GALLEY_ROLE_ROWS, a_row)
            .input("lse", GALLEY_ROLE_ROWS, a_row)
            .input("seed", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .output("dlogits", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE, 0)
            .flags(GALLEY_OP_FULL)
            .infer<backward_shape>()
            .reference<backward_reference>()
            .test("small", {{GALLEY_F32, {2, 3, 5}, -3, 3}, {GALLEY_I32, {2, 3}, -2, 4}, {GALLEY_F32, {2, 3}, 2, 5}, {GALLEY_F32, {1}}})
            .test("odd", {{GALLEY_F32, {37, 67}, -10, 10}, {GALLEY_I32, {37}, -30, 66}, {GALLEY_F32, {37}, 10, 14}, {GALLEY_F32, {1}}})
            .test("even", {{GALLEY_F32, {5, 2056}, -10, 10}, {GALLEY_I32, {5}, -1, 2055}, {GALLEY_F32, {5}, 16, 19}, {GALLEY_F32, {1}}})
            .test("wide", {{GALLEY_F32, {3, 9003}, -10, 10}, {GALLEY_I32, {3}, 0, 9002}, {GALLEY_F32, {3}, 17, 20}, {GALLEY_F32, {1}}})
            .test("bf16", {{GALLEY_F32, {3, 5003}, -10, 10}, {GALLEY_I32, {3}, -2, 5002}, {GALLEY_F32, {3}, 17, 20}, {GALLEY_F32, {1}}},
                  Attrs().s("dtype", "bf16"))
            .test("f16", {{GALLEY_F32, {37, 67}, -10, 10}, {GALLEY_I32, {37}, -30, 66}, {GALLEY_F32, {37}, 10, 14}, {GALLEY_F32, {1}}},
                  Attrs().s("dtype", "f16")));

void hits_shape(const Node& n, Shapes& out) {
  check_labels(n);
  out.set(0, GALLEY_F64, {1});
}

void hits_reference(const Node& n) {
  const double* logits = n.read<double>(0);
  const int32_t* labels = n.read<int32_t>(1);
  double* hits = n.write<double>(0);
  const int64_t R = rows(n.in(0)), V = columns(n.in(0));
  *hits = 0;
  for (int64_t r = 0; r < R; ++r)
    *hits += labels[r] >= 0 && std::max_element(logits + r * V, logits + (r + 1) * V) == logits + r * V + labels[r];
}

Op label_hits(
    "label_hits",
    "hits = in how many rows with label ≥ 0 the label has the largest of the logits, of equal ones the first; logits (…, V), labels "
    "(…) I32, hits F64 (1)");
const bool hits_added = add(label_hits.input("logits", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
                                .input("labels", GALLEY_ROLE_ROWS, a_row)
                                .output("hits", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_NO_GRADIENT)
                                .flags(GALLEY_OP_FULL)
                                .infer<hits_shape>()
                                .reference<hits_reference>()
                                .test("small", {{GALLEY_F32, {2, 3, 2}, -3, 3}, {GALLEY_I32, {2, 3}, -2, 1}})
                                .test("odd", {{GALLEY_F32, {637, 3}, -10, 10}, {GALLEY_I32, {637}, -1, 2}})
                                .test("none_counted", {{GALLEY_F32, {4, 33}}, {GALLEY_I32, {4}, -100, -100}})
                                .test("equal", {{GALLEY_F32, {300, 3}, 2, 2}, {GALLEY_I32, {300}, -1, 2}})
                                .test("one", {{GALLEY_F32, {70, 1}, -1, 1}, {GALLEY_I32, {70}, -1, 0}})
                                .test("wide", {{GALLEY_F32, {3000, 1100}, -1, 1}, {GALLEY_I32, {3000}, 0, 1099}}));

}  // namespace
}  // namespace galley::models::cross_entropy_op
