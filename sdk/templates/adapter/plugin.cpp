// An adapter as a Galley plugin: LoRA, low-rank adaptation (Hu et al. 2021, arXiv:2106.09685). Beside each linear layer that is meant,
//   y = W x + b + alpha / rank · B (A x),   A (rank, in) random at first, B (out, rank) zero
// Only A and B are trained and saved. As B is zero at first, the model begins as it was.
//
// There is no op and no kernel here: the nodes are of ops that come with Galley (`galley plugins models` lists them). A strategy changes
// the model's graph, says who is trained, and says what is saved: by the methods below, which Galley calls while a run is planned.
#include <galley/cpp/patterns.hpp>
#include <galley/cpp/strategy.hpp>

#include <cmath>
#include <cstdio>

namespace {

using namespace galley::sdk;

// Where the parameters are saved, below the run's directory. An adapter that is to be continued by another run would need an option `path`,
// and `source` in galley_tensor_desc, by which parameters begin as a file says.
const char* const kFile = "adapter/low-rank.safetensors";
const std::string kOwn = "low-rank.";  // before the names of what the adapter adds

/// A linear layer, y = W x + b. W is (out, in), or (in, out) where `transposed`, as in GPT-2.
struct Layer {
  std::string name;  // of what the adapter adds to it
  galley_tensor x, w, y;
  int64_t in, out;
  bool transposed;
};

class LowRank {
 public:
  explicit LowRank(const Options& options)
      : targets_(options.strings("targets")),
        rank_(options.integer("rank")),
        scale_(options.number("alpha", static_cast<double>(rank_)) / static_cast<double>(rank_)) {}

  // The forward graph. Galley makes the backward graph of it, and the states of whichever optimizer the recipe has.
  void model(ModelGraph& graph) const {
    const std::vector<Layer> all = layers(graph);
    if (all.empty()) invalid("'targets': " + targets_.text() + " matches no weight of a linear layer", "such as \"*.q_proj.weight\"");
    for (const Layer& layer : all) {
      const double bound = 1 / std::sqrt(static_cast<double>(layer.in));
      // While B is zero, so is the gradient of A: that is no mistake in the first step, and one in any other.
      const galley_tensor a = graph.parameter(layer.name + ".A", {rank_, layer.in}, kFile, "random_uniform",
                                              Attrs().f("low", -bound).f("high", bound), GALLEY_TENSOR_LATE_GRADIENT);
      const galley_tensor b = graph.parameter(layer.name + ".B", {layer.out, rank_}, kFile);
      const galley_tensor ax = graph.node("linear", (layer.name + ".ax").c_str(), {layer.x, a})[0];
      const galley_tensor bax = graph.node("linear", (layer.name + ".bax").c_str(), {ax, b}, Attrs().f("alpha", scale_))[0];
      // All who have read y read the sum, but for the sum itself.
      graph.replace(layer.y, graph.node("add", (layer.name + ".sum").c_str(), {layer.y, bax})[0]);
    }
  }

  // Strongly, what is its own is trained. Weakly, the model is not: another strategy may say that some of it is. What other strategies
  // have added is theirs to decide.
  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_TRAINABLE)) return;
    for (const Claim& parameter : claims) {
      if (galley_same_text(parameter.owner, "low-rank")) parameter.strong(1);
      else if (*parameter.owner == '\0') parameter.weak(0);
    }
  }

  // What is saved: the adapter alone, with what is needed to use it, and the model beside it only if some of it has been trained, too.
  void save(ExportGraph& graph) const {
    bool trained = false;
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      const galley_tensor_info info = graph.info(t);
      trained |= info.kind == GALLEY_KIND_PARAMETER && info.flags & GALLEY_TENSOR_TRAINABLE && !is_own(info.name);
    }
    graph.export_model(trained ? GALLEY_EXPORT_BOTH : GALLEY_EXPORT_OWN);
    char text[64];
    std::snprintf(text, sizeof text, "{\"rank\": %lld, \"scale\": %.17g}\n", static_cast<long long>(rank_), scale_);
    graph.document("adapter/low-rank.json", text);
  }

  // Where the user wants one model (`galley export --merge`): W + alpha / rank · B A in the place of W.
  void merge(ExportGraph& graph) const {
    graph.export_model(GALLEY_EXPORT_MODEL);
    for (const Layer& layer : layers(graph)) {
      const galley_tensor a = graph.find(layer.name + ".A"), b = graph.find(layer.name + ".B");
      // B A as W lies: `linear` multiplies rows, here those of B (out, rank), by a matrix that may lie either way. Where W is transposed,
      // it is the rows of Aᵀ (in, rank) by B.
      galley_tensor product = 0;
      if (layer.transposed) product = graph.node("linear", nullptr, {graph.node("transpose", nullptr, {a})[0], b})[0];
      else product = graph.node("linear", nullptr, {b, a}, Attrs().i("transposed", 1))[0];
      graph.export_as(layer.w, graph.node("add", nullptr, {layer.w, product}, Attrs().f("alpha", scale_))[0]);
    }
  }

 private:
  static bool is_own(const std::string& name) { return name.compare(0, kOwn.size(), kOwn) == 0; }

  /// The layers that `targets` means. When the model is saved, the graph has the adapter's own, too: those are none.
  std::vector<Layer> layers(const GraphReader& graph) const {
    std::vector<Layer> out;
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = graph.node(n);
      if (!(node.op_flags & GALLEY_OP_LINEAR)) continue;
      const galley_tensor_info w = graph.info(node.inputs[1]);
      if (w.kind != GALLEY_KIND_PARAMETER || is_own(w.name) || !targets_.match(w.name)) continue;
      if (w.flags & GALLEY_TENSOR_EMBEDDING)
        invalid(std::string("'targets': ") + w.name + " is the table of an embedding, too, which merging would change", "leave it out");
      bool transposed = false;
      for (uint32_t i = 0; i < node.n_attrs; ++i)
        if (galley_same_text(node.attrs[i]->name, "transposed")) transposed = *static_cast<const int64_t*>(node.attrs[i]->data) != 0;
      out.push_back({kOwn + w.name, node.inputs[0], node.inputs[1], node.outputs[0], w.shape[transposed ? 0 : 1],
                     w.shape[transposed ? 1 : 0], transposed});
    }
    return out;
  }

  Patterns targets_;
  int64_t rank_;
  double scale_;
};

const bool registered = add(strategy<LowRank>("low-rank"));

}  // namespace

GALLEY_PLUGIN("low-rank", "1.0.0");
