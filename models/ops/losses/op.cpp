// Losses of one number at a time: the sum over all numbers that count. Dividing by how many there are is in the seed, as in cross_entropy.
//
// binary_cross_entropy, of any number of labels a row that each are true or not: −log σ(x) where the label is 1, −log σ(−x) where it is 0,
// nothing where it is negative. squared_error, of regression: (prediction − target)²; nothing where the target is no number.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::losses_op {
namespace {

using namespace sdk;

/// Inputs of both: numbers in F32, and what they are compared with, of the same shape.
void check(const Node& n, bool labels) {
  const char *const x = labels ? "logits" : "prediction", *const y = labels ? "labels" : "targets";
  has_rows(n, 0, x);
  in_f32(n, 0, x);
  if (labels) integers(n, 1, y);
  else in_f32(n, 1, y);
  same_shape(n, 0, x, 1, y);
}

template <bool labels>
void forward_shape(const Node& n, Shapes& out) {
  check(n, labels);
  out.set(0, GALLEY_F64, {1});
}
template <bool labels>
void backward_shape(const Node& n, Shapes& out) {
  check(n, labels);
  single(n, 2, "seed");
  in_f32(n, 2, "seed");
  like_in_dtype(out, 0, n, n.in(0));
}

void binary_reference(const Node& n) {
  const double* x = n.read<double>(0);
  const int32_t* labels = n.read<int32_t>(1);
  double sum = 0;
  for (int64_t i = 0; i < count(n.in(0)); ++i)
    if (labels[i] >= 0) sum += std::fmax(x[i], 0) - x[i] * labels[i] + std::log1p(std::exp(-std::fabs(x[i])));
  *n.write<double>(0) = sum;
}
void binary_grad_reference(const Node& n) {
  const double *x = n.read<double>(0), seed = *n.read<double>(2);
  const int32_t* labels = n.read<int32_t>(1);
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = labels[i] < 0 ? 0 : (1 / (1 + std::exp(-x[i])) - labels[i]) * seed;
}
void squared_reference(const Node& n) {
  const double *x = n.read<double>(0), *t = n.read<double>(1);
  double sum = 0;
  for (int64_t i = 0; i < count(n.in(0)); ++i) sum += std::isnan(t[i]) ? 0 : (x[i] - t[i]) * (x[i] - t[i]);
  *n.write<double>(0) = sum;
}
void squared_grad_reference(const Node& n) {
  const double *x = n.read<double>(0), *t = n.read<double>(1), seed = *n.read<double>(2);
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = std::isnan(t[i]) ? 0 : 2 * (x[i] - t[i]) * seed;
}

// Differentiation starts here: the seed stands for the gradient of the loss.
void gradient(Backward& b) {
  if (!b.needs(0)) return;
  const std::string op = std::string(b.node.op) + "_grad";
  b.d_inputs[0] = b.graph.node(op.c_str(), nullptr, {b.node.inputs[0], b.node.inputs[1], b.graph.scalar(GALLEY_SCALAR_LOSS_SEED)}, {},
                               {b.d_inputs[0]}, {b.adds(0)})[0];
}

Op& forward(Op& op, bool labels) {
  return op.input(labels ? "logits" : "prediction", GALLEY_ROLE_ROWS)
      .input(labels ? "labels" : "targets", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
      .output("loss", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES)
      .flags(GALLEY_OP_LOSS | GALLEY_OP_FULL)
      .gradient<gradient>();
}
Op& backward(Op& op, bool labels) {
  return op.input(labels ? "logits" : "prediction", GALLEY_ROLE_ROWS)
      .input(labels ? "labels" : "targets", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
      .input("seed", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .output(labels ? "dlogits" : "dprediction", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE, 0)
      .flags(GALLEY_OP_FULL);
}

/// The same shapes for both directions. `low`, `high`: of what is compared with.
struct Numbers {
  const char* name;
  std::vector<int64_t> shape;
  double range, low, high;
};
void cases(Op& forward, Op& backward, uint32_t dtype, const std::vector<Numbers>& all) {
  for (const Numbers& c : all) {
    const CaseInput x{GALLEY_F32, c.shape, -c.range, c.range}, y{dtype, c.shape, c.low, c.high};
    forward.test(c.name, {x, y});
    backward.test(c.name, {x, y, {GALLEY_F32, {1}}});
  }
  const CaseInput x{GALLEY_F32, {37, 67}}, y{dtype, {37, 67}, 0, 1};
  backward.test("bf16", {x, y, {GALLEY_F32, {1}}}, Attrs().s("dtype", "bf16"));
  backward.test("f16", {x, y, {GALLEY_F32, {1}}}, Attrs().s("dtype", "f16"));
}

Op binary("binary_cross_entropy",
          "loss = Σ over labels ≥ 0 of log(1 + exp(logit)) - label · logit; logits (…, n), labels (…, n) I32: 0 or 1, loss F64 (1)");
Op binary_grad("binary_cross_entropy_grad", "dlogits = (σ(logits) - labels) · seed, 0 where label < 0");
Op squared("squared_error",
           "loss = Σ over targets that are numbers of (prediction - target)²; prediction (…, n), targets (…, n) F32, loss F64 (1)");
Op squared_grad("squared_error_grad", "dprediction = 2 (prediction - targets) · seed, 0 where target is no number");

bool registered() {
  cases(binary, binary_grad, GALLEY_I32,
        {{"small", {2, 3, 5}, 3, -1, 1},
         {"one_a_row", {70, 1}, 10, 0, 1},
         {"odd", {37, 67}, 10, -2, 1},
         {"none_counted", {4, 33}, 3, -100, -1},
         {"far_from_zero", {3, 33}, 400, 0, 1},
         {"wide", {3, 5003}, 10, -1, 1}});
  cases(squared, squared_grad, GALLEY_F32,
        {{"small", {2, 3, 5}, 3, -1, 1}, {"one_a_row", {70, 1}, 10, -10, 10}, {"odd", {37, 67}, 10, 4, 9}, {"wide", {3, 5003}, 10, -1, 1}});
  return add(forward(binary, true).infer<forward_shape<true>>().reference<binary_reference>()) &&
         add(backward(binary_grad, true).infer<backward_shape<true>>().reference<binary_grad_reference>()) &&
         add(forward(squared, false).infer<forward_shape<false>>().reference<squared_reference>()) &&
         add(backward(squared_grad, false).infer<backward_shape<false>>().reference<squared_grad_reference>());
}
const bool added = registered();

}  // namespace
}  // namespace galley::models::losses_op
