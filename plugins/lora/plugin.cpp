// LoRA (Hu et al. 2021, "LoRA: Low-rank adaptation of large language models", arXiv:2106.09685): y + scaling · B·A·dropout(x) beside each
// linear node that is meant, A (rank, in), B (out, rank). With rslora (Kalajdzievski 2023, arXiv:2312.03732) the scaling is alpha / √rank.
// Parameters, files and the choice of layers are PEFT's, so that an adapter goes from here to there and back.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "adapter.hpp"
#include "galley/cpp/glob.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;
using galley::lora::Adapter;

/// A linear layer of the model. W is (out, in), or (in, out) where `transposed` (GPT-2's Conv1D).
struct Module {
  std::string name;  // as transformers calls it: "model.layers.0.self_attn.q_proj"
  galley_tensor x, weight, bias, y;
  int64_t in, out;
  bool transposed;
  bool tied;  // its weight is the embedding's table
  bool head;  // it makes the logits
};

std::string prefixed(const std::string& module) { return "base_model.model." + module; }

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), std::string::npos, end) == 0;
}

int64_t attr(const galley_node_info& node, const char* name) {
  for (uint32_t i = 0; i < node.n_attrs; ++i)
    if (galley_same_text(node.attrs[i]->name, name) && node.attrs[i]->type == GALLEY_ATTR_I64 && node.attrs[i]->count)
      return *static_cast<const int64_t*>(node.attrs[i]->data);
  return 0;
}

/// The model's linear layers in order of execution, each weight once; an adapter's own are none of them.
std::vector<Module> linear_modules(const GraphReader& graph) {
  std::vector<Module> out;
  std::set<std::string> names;
  for (galley_node n = graph.next_node(0, GALLEY_SEGMENT_MODEL); n; n = graph.next_node(n, GALLEY_SEGMENT_MODEL)) {
    const galley_node_info node = graph.node(n);
    if (!(node.op_flags & GALLEY_OP_LINEAR) || node.n_inputs < 2) continue;
    const galley_tensor_info w = graph.info(node.inputs[1]);
    const bool transposed = attr(node, "transposed") != 0, tied = w.flags & GALLEY_TENSOR_EMBEDDING;
    Module m = {node.name,
                node.inputs[0],
                node.inputs[1],
                node.n_inputs > 2 ? node.inputs[2] : 0,
                node.outputs[0],
                w.shape[transposed ? 0 : 1],
                w.shape[transposed ? 1 : 0],
                transposed,
                tied,
                (w.flags & GALLEY_TENSOR_HEAD) != 0};
    const std::string weight = w.name;
    if (w.kind == GALLEY_KIND_PARAMETER && !tied && ends_with(weight, ".weight")) m.name = weight.substr(0, weight.size() - 7);
    if (m.name.rfind("base_model.", 0) == 0) continue;  // an adapter's own
    if (names.insert(m.name).second) out.push_back(std::move(m));
  }
  return out;
}

std::vector<std::string> names_of(const std::vector<Module>& modules) {
  std::vector<std::string> out;
  for (const Module& m : modules) out.push_back(m.name);
  return out;
}

/// How a configuration names these modules: by the last word of their names where that means no others, else by whole names.
std::vector<std::string> short_names(const std::vector<Module>& all, const std::vector<const Module*>& chosen) {
  const std::set<const Module*> meant(chosen.begin(), chosen.end());
  std::map<std::string, bool> alone;  // by word: a model has few, and many modules
  const auto is_alone = [&](const std::string& word) {
    const auto [at, fresh] = alone.try_emplace(word, true);
    if (fresh)
      at->second = std::all_of(all.begin(), all.end(), [&](const Module& other) {
        return (other.name != word && !ends_with(other.name, "." + word)) || meant.count(&other);
      });
    return at->second;
  };
  std::set<std::string> out;
  for (const Module* m : chosen) {
    const std::string word = m->name.substr(m->name.rfind('.') + 1);
    const bool number = word.find_first_not_of("0123456789") == std::string::npos;
    out.insert(!number && is_alone(word) ? word : m->name);
  }
  return {out.begin(), out.end()};
}

class Lora {
 public:
  explicit Lora(const Options& options)
      : adapter_(make_adapter(options)), targets_(options.strings("targets")), merge_(options.boolean("merge")) {
    if (targets_.empty()) targets_ = {"all-linear"};
  }

  void rewrite(Graph& graph, uint32_t segment) const {
    if (segment == GALLEY_SEGMENT_MODEL) adapt(graph);
    if (segment == GALLEY_SEGMENT_EXPORT) save(graph);
    if (segment == GALLEY_SEGMENT_EXPORT ? merge_ : segment == GALLEY_SEGMENT_MERGE && !merge_) merge(graph);
  }

  /// Weakly for the model's own parameters: `freeze` may say that some are trained beside the adapter.
  void claim(const GraphReader&, const galley_subject& subject, Claim& out) const {
    if (subject.kind != GALLEY_SUBJECT_PARAMETER || subject.facet != GALLEY_FACET_TRAINABLE) return;
    if (galley_same_text(subject.owner, "lora")) out.strong(1);
    else if (*subject.owner == '\0') out.weak(0);
  }

 private:
  static Adapter make_adapter(const Options& options) {
    if (options.given("path")) {
      for (const char* name : {"rank", "alpha", "targets", "rslora"})
        if (options.given(name))
          invalid(std::string("'") + name + "' cannot stand beside 'path': the adapter's own configuration decides it");
      Adapter adapter = Adapter::read(options.string("path"));
      adapter.set_dropout(options.number("dropout", adapter.dropout()));
      return adapter;
    }
    if (!options.given("rank")) invalid("give a 'rank' for a new adapter, or the 'path' of one to continue");
    const int64_t rank = options.integer("rank");
    return {rank, options.number("alpha", static_cast<double>(rank)), options.boolean("rslora", false), options.number("dropout", 0)};
  }

  std::vector<const Module*> choose(const std::vector<Module>& modules) const {
    if (modules.empty()) invalid("the model has no linear layer to adapt");
    std::vector<const Module*> out;
    if (adapter_.from_file()) {
      for (const Module& m : modules)
        if (adapter_.targets(m.name) && !(adapter_.all_linear() && m.head)) out.push_back(&m);
      if (out.empty()) invalid("none of the modules that '" + adapter_.file() + "' was made for is a linear layer of this model");
      return out;
    }
    std::set<const Module*> chosen;
    for (const std::string& target : targets_) {
      const size_t before = chosen.size();
      bool found = false;
      for (const Module& m : modules) {
        const bool meant = target == "all-linear" ? !m.head : glob_match_suffix(target, m.name);
        if (meant) chosen.insert(&m);
        found = found || meant;
      }
      if (!found && chosen.size() == before)
        invalid("no linear layer is called '" + target + "'; " + nearest_names(target, names_of(modules)));
    }
    for (const Module& m : modules)
      if (chosen.count(&m)) out.push_back(&m);
    return out;
  }

  void adapt(Graph& graph) const {
    const std::vector<Module> modules = linear_modules(graph);
    const std::vector<const Module*> chosen = choose(modules);
    std::set<std::string> used;
    for (const Module* m : chosen) {
      if (graph.find(prefixed(m->name) + ".lora_A.weight"))
        invalid("'" + m->name +
                "' has an adapter already: another \"lora\" of this recipe made it; give each layers of its own in `targets`");
      add_beside(graph, *m, &used);
    }
    if (adapter_.bias() != "none") take_biases(graph, chosen, &used);
    if (adapter_.from_file()) check_all_used(graph, modules, used);
    const bool conv = std::all_of(chosen.begin(), chosen.end(), [](const Module* m) { return m->transposed; });
    graph.document("adapter/adapter_config.json", adapter_.config(short_names(modules, chosen), conv));
  }

  void add_beside(Graph& graph, const Module& m, std::set<std::string>* used) const {
    const int64_t rank = adapter_.rank(m.name);
    const double bound = 1.0 / std::sqrt(static_cast<double>(m.in));  // Kaiming, uniform, with a = √5
    const std::string prefix = prefixed(m.name);
    const galley_tensor a = parameter(graph, prefix + ".lora_A.weight", {rank, m.in}, GALLEY_TENSOR_LATE_GRADIENT, bound, used);
    const galley_tensor b = parameter(graph, prefix + ".lora_B.weight", {m.out, rank}, 0, 0, used);
    galley_tensor x = m.x;
    if (adapter_.dropout() > 0)
      x = graph.node("dropout", (prefix + ".lora_dropout").c_str(), {x, graph.scalar(GALLEY_SCALAR_RANDOM)},
                     Attrs().f("p", adapter_.dropout()))[0];
    const galley_tensor ax = graph.node("linear", (prefix + ".lora_A").c_str(), {x, a})[0];
    const galley_tensor bax = graph.node("linear", (prefix + ".lora_B").c_str(), {ax, b})[0];
    const double scaling = adapter_.scaling(m.name);
    graph.replace(m.y, graph.node("add", (prefix + ".lora").c_str(), {m.y, bax}, Attrs().f("alpha", scaling))[0]);
  }

  /// A parameter of the adapter, from its file where there is one; else uniform in ±bound, or zeros.
  galley_tensor parameter(Graph& graph, const std::string& name, const std::vector<int64_t>& shape, uint64_t flags, double bound,
                          std::set<std::string>* used) const {
    const Attrs attrs = Attrs().f("low", -bound).f("high", bound);
    galley_tensor_desc d = Graph::described(name, GALLEY_KIND_PARAMETER, GALLEY_F32, shape);
    d.file = "adapter/adapter_model.safetensors";
    d.file_name = name.c_str();
    d.flags = flags;
    if (adapter_.from_file()) {
      const auto stored = adapter_.tensors().find(name);
      if (stored == adapter_.tensors().end()) invalid("'" + adapter_.file() + "' has no '" + name + "'");
      if (stored->second != shape)
        invalid("'" + adapter_.file() + "': '" + name + "' is " + shape_text(stored->second) + "; this model takes " + shape_text(shape));
      d.source = adapter_.file().c_str();
      d.source_name = name.c_str();
      d.flags &= ~static_cast<uint64_t>(GALLEY_TENSOR_LATE_GRADIENT);  // B is not zero any more
      used->insert(name);
    } else if (bound > 0) {
      d.initializer = "random_uniform";
      d.attrs = attrs.data();
      d.n_attrs = attrs.count();
    }
    return graph.make(d);
  }

  /// Biases that the adapter has trained: parameters of its own in the place of the model's.
  void take_biases(Graph& graph, const std::vector<const Module*>& chosen, std::set<std::string>* used) const {
    std::map<galley_tensor, std::string> own;
    for (const Module* m : chosen)
      if (m->bias) own[m->bias] = prefixed(m->name) + ".base_layer.bias";
    if (adapter_.bias() == "all")
      for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
        const galley_tensor_info info = graph.info(t);
        if (info.kind == GALLEY_KIND_PARAMETER && ends_with(info.name, ".bias") && !own.count(t)) own[t] = prefixed(info.name);
      }
    for (const auto& [bias, name] : own) {
      const galley_tensor_info info = graph.info(bias);
      const galley_tensor taken = parameter(graph, name, {info.shape, info.shape + info.rank}, info.flags, 0, used);
      graph.replace(bias, taken);
    }
  }

  /// What is left over in the file would be lost. PEFT puts the weight of an adapted head into it; that one is the model's own as long as
  /// nobody has resized it.
  void check_all_used(Graph& graph, const std::vector<Module>& modules, const std::set<std::string>& used) const {
    for (const auto& [name, stored] : adapter_.tensors()) {
      if (used.count(name)) continue;
      const auto base = std::find_if(modules.begin(), modules.end(),
                                     [n = name](const Module& m) { return n == prefixed(m.name) + ".base_layer.weight"; });
      if (base == modules.end()) invalid("'" + adapter_.file() + "' has '" + name + "', which lora does not use");
      const galley_tensor_info w = graph.info(base->weight);
      const std::vector<int64_t> expected(w.shape, w.shape + w.rank);
      if (stored != expected)
        invalid("'" + adapter_.file() + "': '" + name + "' is " + shape_text(stored) + ", but the model's is " + shape_text(expected) +
                "; the adapter belongs to a model with another vocabulary");
      graph.ignore(name);
    }
  }

  void save(Graph& graph) const {
    bool trained = false;  // of the model itself, beside the adapter
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      const galley_tensor_info info = graph.info(t);
      trained = trained || (info.kind == GALLEY_KIND_PARAMETER && info.flags & GALLEY_TENSOR_TRAINABLE &&
                            std::string(info.name).rfind("base_model.", 0) != 0);
    }
    graph.export_model(trained ? GALLEY_EXPORT_BOTH : GALLEY_EXPORT_OWN);
  }

  void merge(Graph& graph) const {
    graph.export_model(GALLEY_EXPORT_MODEL);
    const std::vector<Module> modules = linear_modules(graph);
    for (const Module* m : choose(modules)) merge(graph, *m);
    // Biases of the adapter's own are called after the model's.
    for (galley_tensor t = graph.next_tensor(0); t; t = graph.next_tensor(t)) {
      std::string name = graph.info(t).name;
      const std::string before = prefixed("");
      if (name.rfind(before, 0) != 0 || !ends_with(name, ".bias")) continue;
      name = name.substr(before.size());
      if (ends_with(name, ".base_layer.bias")) name = name.substr(0, name.size() - std::string("base_layer.bias").size()) + "bias";
      graph.export_as(graph.find(name), t);
    }
  }

  /// W + s·B·A in the place of W.
  void merge(Graph& graph, const Module& m) const {
    if (m.tied)
      invalid("'merge' would change the embedding too: " + m.name + " shares its weight with it; leave out 'merge', or the target");
    const std::string prefix = prefixed(m.name), name = prefix + ".merged";
    const galley_tensor a = graph.find(prefix + ".lora_A.weight"), b = graph.find(prefix + ".lora_B.weight");
    // B·A, or its transpose Aᵀ·Bᵀ: `linear` multiplies rows by a weight in either layout.
    galley_tensor delta = 0;
    if (m.transposed)
      delta = graph.node("linear", (name + ".delta").c_str(), {graph.node("transpose", (name + ".a").c_str(), {a})[0], b})[0];
    else delta = graph.node("linear", (name + ".delta").c_str(), {b, a}, Attrs().i("transposed", 1))[0];
    graph.export_as(m.weight, graph.node("add", name.c_str(), {m.weight, delta}, Attrs().f("alpha", adapter_.scaling(m.name)))[0]);
  }

  Adapter adapter_;
  std::vector<std::string> targets_;
  bool merge_;
};

const bool registered = add(strategy<Lora>("lora"));

}  // namespace

GALLEY_PLUGIN("lora", "1.0.0");
