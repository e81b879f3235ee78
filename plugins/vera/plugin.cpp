// VeRA (Kopiczko, Blankevoort, Asano 2023, "VeRA: Vector-based random matrix adaptation", arXiv:2310.11454): beside each linear node that
// is meant stands λ_b ∘ B·(λ_d ∘ A·dropout(x)). A and B are random, frozen, and the same for all layers, each of which takes as many
// columns of A and rows of B as it has inputs and outputs; λ_d (rank) and λ_b (out) are trained. Parameters, files and random numbers are
// PEFT's.
#include <algorithm>
#include <cmath>
#include <map>

#include "galley/cpp/files.hpp"
#include "galley/cpp/glob.hpp"
#include "peft/config.hpp"
#include "peft/parts.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::peft;
using json = Json;

const std::vector<const char*> kRead = {
    "bias",           "d_initial",       "init_weights", "modules_to_save", "projection_prng_key", "r", "save_projection",
    "target_modules", "exclude_modules", "vera_dropout", "layers_pattern",  "layers_to_transform"};

class Vera {
 public:
  explicit Vera(const Options& options) : merge_(options.boolean("merge")) {
    if (options.given("path")) {
      for (const char* name : {"rank", "targets", "exclude", "layers_to_transform", "layers_pattern", "d_initial", "seed",
                               "save_projection", "bias", "modules_to_save"})
        if (options.given(name))
          invalid(std::string("'") + name + "' cannot stand beside 'path': the adapter's own configuration decides it");
      read(options.string("path"));
      dropout_ = options.number("dropout", dropout_);
      return;
    }
    if (!options.given("rank")) invalid("give a 'rank' for a new adapter, or the 'path' of one to continue");
    rank_ = options.integer("rank");
    dropout_ = options.number("dropout", 0);
    d_initial_ = options.number("d_initial", 0.1);
    seed_ = options.integer("seed", 0);
    save_projection_ = options.boolean("save_projection", true);
    bias_ = options.string("bias", "none");
    std::vector<std::string> targets = options.strings("targets");
    if (targets.empty()) targets = {"all-linear"};
    targets_ = words_of(targets, "targets");
    exclude_ = words_of(options.strings("exclude"), "exclude");
    layers_ = layers_of(options);
    to_save_ = words_of(options.strings("modules_to_save"), "modules_to_save");
  }

  void model(ModelGraph& graph) const { adapt(graph); }
  void save(ExportGraph& graph) const {
    galley::peft::save(graph);
    if (merge_) merge_into_model(graph);
  }
  void merge(ExportGraph& graph) const {
    if (!merge_) merge_into_model(graph);
  }

  void claim(const GraphReader&, const Claims& claims) const { claim_adapter(claims, "vera", {kA, kB}); }

 private:
  static constexpr const char *kA = "base_model.vera_A", *kB = "base_model.vera_B";

  void read(const std::string& folder) {
    const std::string path = folder + "/adapter_config.json";
    text_ = read_folder_text(folder);
    const json config = read_config(path, text_, "VERA");
    refuse_unknown(config, path, kRead, "vera");
    const auto key = [&](const char* name) { return Key(config, path, name); };
    const double rank = key("r").number(256);
    if (rank < 1 || rank > 65536 || std::floor(rank) != rank) key("r").wrong("has to be a whole number from 1 on");
    rank_ = static_cast<int64_t>(rank);
    dropout_ = key("vera_dropout").number(0);
    if (!(dropout_ >= 0 && dropout_ < 1)) key("vera_dropout").wrong("has to lie in [0, 1)");
    if (const Key seed = key("projection_prng_key")) {
      if (!seed.value().is_number_unsigned()) seed.wrong("has to be a whole number from 0 on");
      seed_ = static_cast<int64_t>(seed.value().get<uint64_t>() & 0xFFFFFFFFu);  // PyTorch's generator takes no more of it
    }
    save_projection_ = key("save_projection").boolean(true);
    bias_ = key("bias").string("none");
    if (bias_ != "none" && bias_ != "vera_only" && bias_ != "all") key("bias").wrong("has to be \"none\", \"vera_only\" or \"all\"");
    modules_to_save_ = key("modules_to_save").list();
    all_linear_ = is_all_linear(key("target_modules"));
    if (!all_linear_) target_modules_ = key("target_modules").meant();
    exclude_modules_ = key("exclude_modules").meant();
    layers_ = read_layers(config, path, target_modules_);
    if (!all_linear_ && target_modules_.empty()) key("target_modules").wrong("names no modules");
    file_ = AdapterFile(folder + "/adapter_model.safetensors");
  }

  std::string saved_with(const Graph& graph, const std::string& module) const {
    const std::string head = task_module(graph, module);
    return head.empty() ? whole_module(module, modules_to_save_, to_save_) : head;
  }

  std::vector<const Module*> choose(const Graph& graph, const std::vector<Module>& modules) const {
    std::vector<const Module*> out;
    if (file_.there()) {
      for (const Module& m : modules)
        if (!exclude_modules_.targets(m.name) && (all_linear_ ? !m.head : means(target_modules_, layers_, m.name))) out.push_back(&m);
    } else {
      out = galley::peft::choose(modules, targets_, exclude_);
      keep(layers_, &out);
    }
    std::erase_if(out, [&](const Module* m) { return !saved_with(graph, m->name).empty(); });
    if (out.empty())
      invalid(file_.there() ? "none of the modules that '" + file_.path + "' was made for is a linear layer of this model"
                            : "'modules_to_save' leaves no linear layer of 'targets' to adapt");
    return out;
  }

  /// A, B, and the parts of them that layers of each size read.
  class Projections {
   public:
    Projections(Graph& graph, Parts& parts, const Vera& vera, const std::vector<const Module*>& chosen) : graph_(graph) {
      for (const Module* m : chosen) {
        in_ = std::max(in_, m->in);
        out_ = std::max(out_, m->out);
      }
      rank_ = vera.rank_;
      a_ = make(parts, vera, kA, {rank_, in_}, in_, 0);
      b_ = make(parts, vera, kB, {out_, rank_}, rank_, rank_ * in_);
    }
    galley_tensor a(int64_t in) { return part(a_, in_, in, {rank_, in}, ".in" + std::to_string(in)); }
    galley_tensor b(int64_t out) { return part(b_, out_, out, {out, rank_}, ".out" + std::to_string(out)); }

   private:
    /// Uniform, as wide as PEFT's generator makes them; `before`: how many numbers it has drawn already.
    galley_tensor make(Parts& parts, const Vera& vera, const char* name, const std::vector<int64_t>& shape, int64_t fan_in,
                       int64_t before) {
      const double bound = std::sqrt(3.0) * std::sqrt(2.0) / std::sqrt(static_cast<double>(fan_in));
      Attrs attrs;
      attrs.i("key", vera.seed_).i("before", before).f("bound", bound);
      if (vera.save_projection_) return parts.make(name, shape, 0, {"vera_random", {}, std::move(attrs)});
      const std::string own = name;
      galley_tensor_desc d = Graph::described(own, GALLEY_KIND_CONSTANT, GALLEY_F32, shape);
      d.initializer = "vera_random";
      d.attrs = attrs.data();
      d.n_attrs = attrs.count();
      return graph_.make(d);
    }
    galley_tensor part(galley_tensor of, int64_t all, int64_t size, const std::vector<int64_t>& shape, const std::string& suffix) {
      if (size == all) return of;
      galley_tensor& made = parts_[{of, size}];
      if (made) return made;
      const std::string name = std::string(graph_.info(of).name) + suffix;
      galley_tensor_desc d = Graph::described(name, GALLEY_KIND_CONSTANT, GALLEY_F32, shape);
      d.initializer = "vera_slice";
      d.initializer_inputs = &of;
      d.n_initializer_inputs = 1;
      Attrs attrs;
      attrs.i("rows", shape[0]).i("columns", shape[1]);
      d.attrs = attrs.data();
      d.n_attrs = attrs.count();
      return made = graph_.make(d);
    }
    Graph& graph_;
    int64_t rank_ = 0, in_ = 0, out_ = 0;
    galley_tensor a_ = 0, b_ = 0;
    std::map<std::pair<galley_tensor, int64_t>, galley_tensor> parts_;
  };

  void adapt(ModelGraph& graph) const {
    if (graph.find(kA)) invalid("the recipe uses \"vera\" twice; name all layers in one");
    const std::vector<Module> modules = linear_modules(graph, file_.tensors);
    const std::vector<const Module*> chosen = choose(graph, modules);
    Parts parts(graph, file_, [&](const std::string& module) { return saved_with(graph, module); });
    Projections projections(graph, parts, *this, chosen);
    for (const Module* m : chosen) {
      const std::string prefix = prefixed(m->name);
      const galley_tensor d = parts.make(prefix + ".vera_lambda_d", {rank_}, GALLEY_TENSOR_LATE_GRADIENT | GALLEY_TENSOR_NO_DECAY,
                                         {"fill", {}, Attrs().f("value", d_initial_)});
      const galley_tensor b = parts.make(prefix + ".vera_lambda_b", {m->out}, GALLEY_TENSOR_NO_DECAY, {});
      galley_tensor x = m->x;
      if (dropout_ > 0)
        x = graph.node("dropout", (prefix + ".vera_dropout").c_str(), {x, graph.scalar(GALLEY_SCALAR_RANDOM)}, Attrs().f("p", dropout_))[0];
      const auto node = [&](const char* op, const char* name, galley_tensor first, galley_tensor second) {
        return graph.node(op, (prefix + name).c_str(), {first, second})[0];
      };
      const galley_tensor ax = node("scale_columns", ".vera_d", node("linear", ".vera_A", x, projections.a(m->in)), d);
      const galley_tensor bx = node("scale_columns", ".vera_b", node("linear", ".vera_B", ax, projections.b(m->out)), b);
      graph.replace(m->y, node("add", ".vera", m->y, bx));
    }
    std::vector<std::string> all;
    const std::vector<std::string> saved = parts.take_modules(&all);
    check_whole(to_save_, all);
    if (bias_ != "none") parts.take_biases(chosen, bias_ == "all" ? Parts::Biases::All : Parts::Biases::Adapted);
    if (!save_projection_)
      for (const char* name : {kA, kB}) parts.leave(name);
    parts.check_all_used(modules, "vera");
    document(graph, config(modules, chosen, saved));
  }

  json config(const std::vector<Module>& modules, const std::vector<const Module*>& chosen, std::vector<std::string> saved) const {
    json out = file_.there() ? json::parse(text_) : new_config("VERA", short_names(modules, chosen));
    out["vera_dropout"] = dropout_;
    if (file_.there()) return out;
    out["r"] = rank_;
    out["projection_prng_key"] = seed_;
    out["save_projection"] = save_projection_;
    out["d_initial"] = d_initial_;
    out["init_weights"] = true;
    out["fan_in_fan_out"] = std::all_of(chosen.begin(), chosen.end(), [](const Module* m) { return m->transposed; });
    out["bias"] = bias_;
    if (!saved.empty()) out["modules_to_save"] = std::move(saved);
    return out;
  }

  /// W + (λ_b ∘ B)·(λ_d ∘ A) in the place of W.
  void merge_into_model(ExportGraph& graph) const {
    Merge into(graph);
    const std::vector<Module> modules = linear_modules(graph, file_.tensors);
    for (const Module* m : choose(graph, modules)) {
      const std::string prefix = prefixed(m->name), name = prefix + ".merged";
      const auto part = [&](const char* of, int64_t size, const char* suffix) {
        const galley_tensor t = graph.find(std::string(of) + suffix + std::to_string(size));
        return t ? t : graph.find(of);
      };
      const galley_tensor a = part(kA, m->in, ".in"), b = part(kB, m->out, ".out");
      const galley_tensor lambda_d = graph.find(prefix + ".vera_lambda_d"), lambda_b = graph.find(prefix + ".vera_lambda_b");
      const auto node = [&](const char* op, const char* what, const std::vector<galley_tensor>& inputs, const Attrs& attrs = {}) {
        return graph.node(op, (name + what).c_str(), inputs, attrs)[0];
      };
      // (in, out), as a transposed weight lies: columns are what is multiplied.
      const galley_tensor da = node("scale_columns", ".d", {node("transpose", ".a", {a}), lambda_d});
      galley_tensor delta = node("scale_columns", ".b", {node("linear", ".delta", {da, b}), lambda_b});
      if (!m->transposed) delta = node("transpose", ".rows", {delta});
      into.weight(*m, node("add", "", {m->weight, delta}));
    }
    into.taken({".vera_lambda_"});
  }

  int64_t rank_ = 0, seed_ = 0;
  double dropout_ = 0, d_initial_ = 0.1;
  bool save_projection_ = true, merge_ = false, all_linear_ = false;
  std::string bias_ = "none", text_;
  std::vector<Word> targets_, exclude_, to_save_;
  Meant target_modules_, exclude_modules_;
  Layers layers_;
  std::vector<std::string> modules_to_save_;
  AdapterFile file_;
};

const bool registered = add(strategy<Vera>("vera"));

}  // namespace

GALLEY_PLUGIN("vera", "1.0.0");
