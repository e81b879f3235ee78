// ReLoRA (Lialin et al., "ReLoRA: High-rank training through low-rank updates", 2023, arXiv:2307.05695). For tests, built outside the tree:
// an adapter that the update merges into a weight which has no gradient. Every n steps
//   W = W + B A,  A is drawn anew,  B = 0,  the optimizer's states of A and B = 0
#include <galley/philox.h>
#include <galley/cpp/strategy.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace galley::sdk;

constexpr uint64_t in_place = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT, fixed = GALLEY_OPERAND_NO_GRADIENT;

bool now(const Node& node, uint32_t step, uint32_t apply) {
  return *node.read<int32_t>(apply) && *node.read<int64_t>(step) % node.i("every", 1) == 0;
}

// ---- W = W + B A, and the adapter from its beginning ---------------------------------------------------------------------------------

enum Merge : uint32_t { W, A, B, MergeStep, MergeApply };

void infer_merge(const Node& node, Shapes&) {
  const galley_operand &w = node.in(W), &a = node.in(A), &b = node.in(B);
  if (w.rank != 2 || a.rank != 2 || b.rank != 2 || a.shape[0] != b.shape[1] || b.shape[0] != w.shape[0] || a.shape[1] != w.shape[1])
    invalid(std::string(node.name()) + ": W " + shape_text(w) + ", A " + shape_text(a) + ", B " + shape_text(b));
}

template <class Real>
void merge(const Node& node) {
  if (!now(node, MergeStep, MergeApply)) return;
  const int64_t out = node.in(W).shape[0], in = node.in(W).shape[1], rank = node.in(A).shape[0];
  const auto key = static_cast<uint64_t>(node.i("key", 0)), step = static_cast<uint64_t>(*node.read<int64_t>(MergeStep));
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  Real *w = node.update<Real>(W), *a = node.update<Real>(A), *b = node.update<Real>(B);
  for (int64_t i = 0; i < out; ++i)
    for (int64_t j = 0; j < in; ++j) {
      double sum = 0;
      for (int64_t k = 0; k < rank; ++k) sum += static_cast<double>(b[i * rank + k]) * static_cast<double>(a[k * in + j]);
      w[i * in + j] = static_cast<Real>(static_cast<double>(w[i * in + j]) + sum);
    }
  std::fill_n(b, out * rank, Real{0});
  for (int64_t i = 0; i < rank * in; ++i)
    a[i] = static_cast<Real>(bound *
                             (2 * static_cast<double>(galley_uniform(galley_philox(key, static_cast<uint64_t>(i), step).word[0])) - 1));
}
void run_merge(const Node& node, void*) { merge<float>(node); }
void reference_merge(const Node& node) { merge<double>(node); }

Op merge_op("relora_merge", "every n steps W = W + B A, A random, B = 0");
const bool merge_added = add(merge_op.input("w", GALLEY_ROLE_WHOLE, in_place)
                                 .input("a", GALLEY_ROLE_WHOLE, in_place)
                                 .input("b", GALLEY_ROLE_WHOLE, in_place)
                                 .input("applied_step", GALLEY_ROLE_WHOLE, fixed)
                                 .input("apply", GALLEY_ROLE_WHOLE, fixed)
                                 .attr("every", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "steps")
                                 .attr("key", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of the random numbers")
                                 .infer<infer_merge>()
                                 .reference<reference_merge>()) &&
                         add(kernel<run_merge>("relora_merge.cpu", "relora_merge"));

// ---- States from their beginning -----------------------------------------------------------------------------------------------------

void infer_reset(const Node&, Shapes&) {}
template <class Real>
void reset(const Node& node) {
  if (now(node, 1, 2)) std::fill_n(node.update<Real>(0), count(node.in(0)), Real{0});
}
void run_reset(const Node& node, void*) { reset<float>(node); }
void reference_reset(const Node& node) { reset<double>(node); }

Op reset_op("relora_reset", "every n steps x = 0");
const bool reset_added = add(reset_op.input("x", GALLEY_ROLE_WHOLE, in_place)
                                 .input("applied_step", GALLEY_ROLE_WHOLE, fixed)
                                 .input("apply", GALLEY_ROLE_WHOLE, fixed)
                                 .attr("every", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "steps")
                                 .infer<infer_reset>()
                                 .reference<reference_reset>()) &&
                         add(kernel<run_reset>("relora_reset.cpu", "relora_reset"));

// ---- The strategy --------------------------------------------------------------------------------------------------------------------

class ReLora {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_AFTER;
  explicit ReLora(const Options& options) : rank_(options.integer("rank")), every_(options.integer("every")) {}

  /// The adapter is trained; the weights beside it have no gradient, but the update writes them; the rest is frozen.
  void claim(const GraphReader& graph, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_TRAINABLE)) return;
    for (const Claim& parameter : claims) {
      if (galley_same_text(parameter.owner, "relora")) parameter.strong(1);
      else if (graph.find(adapter(parameter.name) + ".A")) parameter.strong(GALLEY_TRAINABLE_WRITTEN);
      else parameter.weak(0);
    }
  }

  void save(ExportGraph& graph) const {
    graph.export_model(GALLEY_EXPORT_MODEL);
    each(graph, [&](galley_tensor w, galley_tensor a, galley_tensor b) {
      const galley_tensor product = graph.node("linear", nullptr, {b, a}, Attrs().i("transposed", 1))[0];
      graph.export_as(w, graph.node("add", nullptr, {w, product})[0]);
    });
  }
  void model(ModelGraph& graph) const {
    for (galley_node n = graph.next_node(0); n; n = graph.next_node(n)) {
      const galley_node_info node = graph.node(n);
      const galley_tensor_info w = graph.info(node.n_inputs > 1 ? node.inputs[1] : node.inputs[0]);
      if (!(node.op_flags & GALLEY_OP_LINEAR) || node.block < 0 || std::string(node.name).rfind("relora.", 0) == 0) continue;
      const std::string own = adapter(w.name);
      const double bound = 1 / std::sqrt(static_cast<double>(w.shape[1]));
      const galley_tensor x = node.inputs[0], y = node.outputs[0];
      const galley_tensor a = graph.parameter(own + ".A", {rank_, w.shape[1]}, file, "random_uniform",
                                              Attrs().f("low", -bound).f("high", bound), GALLEY_TENSOR_LATE_GRADIENT);
      const galley_tensor b = graph.parameter(own + ".B", {w.shape[0], rank_}, file);
      const galley_tensor ax = graph.node("linear", (own + ".down").c_str(), {x, a})[0],
                          bax = graph.node("linear", (own + ".up").c_str(), {ax, b})[0];
      graph.replace(y, graph.node("add", (own + ".sum").c_str(), {y, bax})[0]);
    }
  }

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    const galley_tensor step = graph.scalar(GALLEY_SCALAR_APPLIED_STEP), apply = graph.scalar(GALLEY_SCALAR_APPLY);
    each(graph, [&](galley_tensor w, galley_tensor a, galley_tensor b) {
      const auto key = static_cast<int64_t>(galley_name_hash(graph.info(w).name));
      graph.node("relora_merge", nullptr, {w, a, b, step, apply}, Attrs().i("every", every_).i("key", key), {});
      for (const galley_tensor t : {a, b})
        for (const char* state : {".exp_avg", ".exp_avg_sq", ".momentum_buffer"})
          if (const galley_tensor s = graph.find(graph.info(t).name + std::string(state)))
            graph.node("relora_reset", nullptr, {s, step, apply}, Attrs().i("every", every_), {});
    });
  }

 private:
  static constexpr const char* file = "adapter/relora.safetensors";
  static std::string adapter(const std::string& weight) { return "relora." + weight; }

  /// body(W, A, B) for each adapter.
  template <class Body>
  static void each(Graph& graph, const Body& body) {
    std::vector<galley_tensor> weights;
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t))
      if (graph.info(t).kind == GALLEY_KIND_PARAMETER && graph.find(adapter(graph.info(t).name) + ".A")) weights.push_back(t);
    for (const galley_tensor w : weights) {
      const std::string own = adapter(graph.info(w).name);
      body(w, graph.find(own + ".A"), graph.find(own + ".B"));
    }
  }

  int64_t rank_, every_;
};
const bool strategy_added = add(strategy<ReLora>("relora"));

}  // namespace

GALLEY_PLUGIN("relora", "1.0.0");
