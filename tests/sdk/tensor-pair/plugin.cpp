// Tensor parallelism of pairs of linear layers (Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using Model
// Parallelism", 2019, arXiv:1909.08053, section 3). For tests, built outside the tree. Of y = W₂ f(W₁ x) each process has some of the rows of
// W₁ and the columns of W₂ that go with them: it computes its part of f(W₁ x) alone, and what it adds to y; the sum of all is y.
#include <galley/cpp/patterns.hpp>
#include <galley/cpp/strategy.hpp>

#include <map>

namespace {

using namespace galley::sdk;

class TensorPair {
 public:
  explicit TensorPair(const Options& options) : second_(options.strings("second")), axis_(options.string("axis")) {}

  static constexpr uint32_t phase = GALLEY_PHASE_REPLACE;

  void model(ModelGraph& graph) const {
    const galley_run_info run = graph.run();
    const galley_axis* axis = nullptr;
    for (uint32_t i = 0; i < run.n_axes; ++i)
      if (axis_ == run.axes[i]->name) axis = run.axes[i];
    if (!axis) invalid("the run has no axis '" + axis_ + "'", "name it in the recipe: ranks = { " + axis_ + " = 2 }");
    if (axis->ranks == 1) return;
    std::vector<galley_node> nodes;
    for (galley_node n = graph.next_node(0); n; n = graph.next_node(n))
      if (is_linear(graph.node(n)) && second_.match(graph.info(graph.node(n).inputs[1]).name)) nodes.push_back(n);
    for (const galley_node n : nodes) Pair(graph, *axis).divide(n);
  }

 private:
  static bool is_linear(const galley_node_info& node) { return galley_same_text(node.op, "linear"); }

  class Pair {
   public:
    Pair(ModelGraph& graph, const galley_axis& axis) : graph_(graph), axis_(axis) {}

    void divide(galley_node n) {
      const galley_node_info node = graph_.node(n);
      const std::string name = node.name;
      if (node.n_inputs > 2 && node.inputs[2]) invalid(name + " has a bias, which each process would add", "leave it out of 'second'");
      const galley_tensor x = own(node.inputs[0]), w = node.inputs[1], y = node.outputs[0];
      graph_.divide(w, axis_.name, is_transposed(node) ? 0 : 1);
      const galley_tensor mine = graph_.node("linear", (name + ".own").c_str(), {x, w}, attrs(node))[0];
      graph_.replace(y, graph_.node("all_reduce", (name + ".sum").c_str(), {mine},
                                    Attrs().s("axis", axis_.name).i("ranks", axis_.ranks).i("stride", axis_.stride))[0]);
    }

   private:
    static bool is_transposed(const galley_node_info& node) {
      for (uint32_t k = 0; k < node.n_attrs; ++k)
        if (galley_same_text(node.attrs[k]->name, "transposed")) return *static_cast<const int64_t*>(node.attrs[k]->data) != 0;
      return false;
    }
    static Attrs attrs(const galley_node_info& node) {
      Attrs out;
      for (uint32_t k = 0; k < node.n_attrs; ++k) out.copy(*node.attrs[k]);
      return out;
    }
    /// This process's part of what lies between the two layers, by the same nodes on parts.
    galley_tensor own(galley_tensor t) {
      const auto known = own_.find(t);
      if (known != own_.end()) return known->second;
      const galley_tensor_info info = graph_.info(t);
      if (!info.producer) invalid("'" + std::string(info.name) + "' is not computed by a linear layer", "leave the pair out of 'second'");
      const galley_node_info node = graph_.node(info.producer);
      std::vector<galley_tensor> inputs(node.inputs, node.inputs + node.n_inputs);
      if (is_linear(node)) {
        graph_.divide(inputs[1], axis_.name, is_transposed(node) ? 1 : 0);
        if (inputs.size() > 2 && inputs[2]) graph_.divide(inputs[2], axis_.name, 0);
      } else {
        if (node.op_flags & GALLEY_OP_RANDOM || node.n_outputs != 1) invalid(std::string(node.name) + " is not computed number by number");
        for (galley_tensor& in : inputs) in = own(in);
      }
      return own_[t] = graph_.node(node.op, (std::string(node.name) + ".own").c_str(), inputs, attrs(node))[0];
    }

    ModelGraph& graph_;
    const galley_axis& axis_;
    std::map<galley_tensor, galley_tensor> own_;
  };

  Patterns second_;
  std::string axis_;
};
const bool added = add(strategy<TensorPair>("tensor-pair"));

}  // namespace

GALLEY_PLUGIN("tensor-pair", "1.0.0");
