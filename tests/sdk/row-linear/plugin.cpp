// A product that stands for `linear`. For tests, built outside the tree: it computes each row of y = x·Wᵀ + b by itself, and takes the
// place of the model's own linear nodes, before adapters are put beside them.
#include <galley/cpp/strategy.hpp>

namespace {

using namespace galley::sdk;

void infer(const Node& node, Shapes& out) {
  const galley_operand &x = node.in(0), &w = node.in(1);
  if (w.rank != 2 || columns(x) != w.shape[1]) invalid(std::string(node.name()) + ": x " + shape_text(x) + ", w " + shape_text(w));
  out.like(0, x, w.shape[0]);
}

template <class Real>
void product(const Node& node) {
  const int64_t in = node.in(1).shape[1], out = node.in(1).shape[0];
  const Real *x = node.read<Real>(0), *w = node.read<Real>(1), *bias = node.has(2) ? node.read<Real>(2) : nullptr;
  Real* y = node.write<Real>(0);
  for (int64_t row = 0; row < rows(node.in(0)); ++row)
    for (int64_t i = 0; i < out; ++i) {
      double sum = bias ? static_cast<double>(bias[i]) : 0;
      for (int64_t k = 0; k < in; ++k) sum += static_cast<double>(x[row * in + k]) * static_cast<double>(w[i * in + k]);
      y[row * out + i] = static_cast<Real>(sum);
    }
}
void run(const Node& node, void*) { product<float>(node); }
void reference(const Node& node) { product<double>(node); }

/// The backward products are those of `linear`.
void gradient(Backward& b) {
  const galley_tensor x = b.node.inputs[0], w = b.node.inputs[1], dy = b.d_outputs[0];
  const std::string name = b.node.name;
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("linear_dx", (name + ".dx").c_str(), {dy, w}, {}, {b.d_inputs[0]}, {b.adds(0)})[0];
  if (b.needs(1)) b.d_inputs[1] = b.graph.node("linear_dw", (name + ".dw").c_str(), {dy, x}, {}, {b.d_inputs[1]}, {b.adds(1)})[0];
  if (b.needs(2)) b.d_inputs[2] = b.graph.node("sum_rows", (name + ".db").c_str(), {dy}, {}, {b.d_inputs[2]}, {b.adds(2)})[0];
}

Op op("row_linear", "y = x·Wᵀ + b; x (…, K), W (N, K), b (N), y (…, N)");
const bool op_added = add(op.input("x", GALLEY_ROLE_ROWS)
                              .input("w", GALLEY_ROLE_WHOLE)
                              .input("bias", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
                              .output("y", GALLEY_ROLE_ROWS)
                              .flags(GALLEY_OP_LINEAR)
                              .infer<infer>()
                              .gradient<gradient>()
                              .reference<reference>()) &&
                      add(kernel<run>("row_linear.cpu", "row_linear"));

class RowLinear {
 public:
  static constexpr uint32_t phase = GALLEY_PHASE_REPLACE;
  explicit RowLinear(const Options&) {}

  void model(ModelGraph& graph) const {
    for (galley_node n = graph.next_node(0), next = 0; n; n = next) {
      next = graph.next_node(n);
      const galley_node_info node = graph.node(n);
      if (!galley_same_text(node.op, "linear") || node.block < 0) continue;
      const std::vector<galley_tensor> inputs(node.inputs, node.inputs + node.n_inputs);
      graph.replace(node.outputs[0], graph.node("row_linear", (std::string(node.name) + ".rows").c_str(), inputs)[0]);
    }
  }
};
const bool strategy_added = add(strategy<RowLinear>("row-linear"));

}  // namespace

GALLEY_PLUGIN("row-linear", "1.0.0");
