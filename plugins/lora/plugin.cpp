// LoRA (Hu et al. 2021, "LoRA: Low-rank adaptation of large language models", arXiv:2106.09685): y + scaling · B·A·dropout(x) beside each
// linear node that is meant, A (rank, in), B (out, rank). With rslora (Kalajdzievski 2023, arXiv:2312.03732) the scaling is alpha / √rank.
// LoRA+ (Hayou et al. 2024, arXiv:2402.12354) trains B with a higher rate than A. DoRA (columns.cpp) trains the length of each row of the
// adapted weight apart from its direction. PiSSA, OLoRA and LoftQ (init.cpp) begin with parts of the weight. Rows of the embedding and the
// head may be trained beside it (tokens.cpp).
// Parameters, files and the choice of layers are PEFT's, so that an adapter goes from here to there and back.
#include <algorithm>
#include <cmath>

#include "adapter.hpp"
#include "galley/cpp/strategy.hpp"
#include "peft/parts.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::peft;
using galley::lora::Adapter;

Attrs layout(const Module& m) { return m.transposed ? Attrs().i("transposed", 1) : Attrs(); }

class Lora {
 public:
  explicit Lora(const Options& options)
      : adapter_(options), merge_(options.boolean("merge")), b_lr_factor_(options.number("b_lr_factor", 1)) {}

  void model(ModelGraph& graph) const { adapt(graph); }
  void window(Graph& graph) const {
    if (adapter_.dora()) measure(graph);
  }
  void load(LoadGraph& graph) const {
    if (adapter_.init().principal()) split(graph);
    if (adapter_.init().loftq()) begin_as_stored(graph);
  }
  void save(ExportGraph& graph) const {
    save_adapter(graph);
    if (merge_) merge_into_model(graph);
  }
  void merge(ExportGraph& graph) const {
    if (!merge_) merge_into_model(graph);
  }

  void claim(const GraphReader&, const Claims& claims) const { claim_adapter(claims, "lora"); }

 private:
  void adapt(ModelGraph& graph) const {
    if (has_own(graph, ".lora_A.weight"))
      invalid("the recipe uses \"lora\" twice", "name all layers in one; rank_pattern and alpha_pattern give them values of their own");
    const std::vector<Module> modules = linear_modules(graph, adapter_.file().tensors);
    const std::vector<const Module*> chosen = adapter_.choose(graph, modules);
    Parts parts(graph, adapter_.file(), [&](const std::string& module) { return adapter_.saved_with(graph, module); });
    for (const Module* m : chosen) add_beside(graph, parts, *m);
    adapter_.tokens().adapt(graph, parts, chosen, [&](const std::string& module) { return adapter_.saved_with(graph, module); });
    std::vector<std::string> all;
    const std::vector<std::string> saved = parts.take_modules(&all);
    adapter_.check_saved(all);
    if (adapter_.bias() != "none") parts.take_biases(chosen, adapter_.bias() == "all" ? Parts::Biases::All : Parts::Biases::Adapted);
    parts.check_all_used(modules, "lora");
    document(graph, adapter_.config(graph, modules, chosen, saved));
  }

  void add_beside(ModelGraph& graph, Parts& parts, const Module& m) const {
    const int64_t rank = adapter_.rank(m);
    const std::string prefix = prefixed(m.name);
    const bool principal = adapter_.init().principal(), random = !principal && !adapter_.init().loftq();
    const galley_tensor a =
        parts.make(prefix + ".lora_A.weight", {rank, m.in}, random ? GALLEY_TENSOR_LATE_GRADIENT : 0, random ? begin_of_a(m) : Begin());
    const galley_tensor b = parts.make(prefix + ".lora_B.weight", {m.out, rank}, 0, {});
    if (!random) check_rank(m, rank);
    if (principal) keep_first(graph, m, a, b);
    if (b_lr_factor_ != 1) graph.scale_rate(b, b_lr_factor_);
    galley_tensor x = m.x;
    if (adapter_.dropout() > 0)
      x = graph.node("dropout", (prefix + ".lora_dropout").c_str(), {x, graph.scalar(GALLEY_SCALAR_RANDOM)},
                     Attrs().f("p", adapter_.dropout()))[0];
    const galley_tensor y = adapter_.dora() ? with_magnitude(graph, parts, m, x, a, b)
                                            : graph.node("add", (prefix + ".lora").c_str(), {m.y, product(graph, m, x, a, b)})[0];
    graph.replace(m.y, y);
  }

  static void check_rank(const Module& m, int64_t rank) {
    if (const int64_t most = std::min(m.in, m.out); rank > most)
      invalid("'init': rank " + std::to_string(rank) + " is more than " + std::to_string(most) + ", the rank of the weight of " + m.name,
              "take a smaller rank, or leave that layer out");
  }
  /// What A and B begin with, where the weight begins without it: what is saved belongs to the weight as it was.
  static void keep_first(Graph& graph, const Module& m, galley_tensor a, galley_tensor b) {
    if (m.tied) invalid("'init' would change the embedding too: " + m.name + " shares its weight with it; leave out 'init', or the target");
    for (const galley_tensor of : {a, b}) {
      const galley_tensor_info info = graph.info(of);
      const std::vector<int64_t> shape(info.shape, info.shape + info.rank);
      const std::string name = first_of(info.name);
      galley_tensor_desc d = Graph::described(name, GALLEY_KIND_STATE, GALLEY_F32, shape);
      d.parameter = of;
      graph.make(d);
    }
  }
  static std::string first_of(const std::string& parameter) { return parameter + ".first"; }

  /// What is trained is stored(W − scaling · B₀·A₀) + scaling · B·A; the adapter that is saved is read beside stored(W).
  [[noreturn]] void refuse_stored(const Module& m, const std::string& format) const {
    invalid("init = \"" + adapter_.init().text + "\": the weight of " + m.name + " is stored as '" + format +
                "', so that an adapter that is saved for the weight as it was would be another model than the one that was trained",
            "take init = \"loftq\", which begins with what 4 bits lose; or merge = true, which saves one model");
  }

  /// While loading: A and B begin as a part of the weight, and the weight without it.
  void split(LoadGraph& graph) const {
    for (const auto& [m, name] : adapted(graph)) {
      if (const std::string format = graph.info(m.weight).format; !format.empty() && !merge_) refuse_stored(m, format);
      Attrs attrs = layout(m);
      attrs.i("rank", adapter_.rank(m)).f("scale", adapter_.scaling(m)).i("iterations", adapter_.init().iterations);
      if (adapter_.init().text == "olora") attrs.s("how", "qr");
      const std::string part = name + ".principal";
      const std::vector<galley_tensor> made = graph.node("lora_principal", part.c_str(), {m.weight}, attrs, {0, 0});
      const std::string of[] = {name + ".lora_B.weight", name + ".lora_A.weight"};
      for (size_t i = 0; i < 2; ++i) {
        if (!adapter_.from_file()) graph.begin_as(graph.find(of[i]), made[i]);
        graph.begin_as(graph.find(first_of(of[i])), made[i]);
      }
      const galley_tensor delta = product(graph, m, made[1], made[0], part);
      graph.begin_as(m.weight, graph.node("add", nullptr, {m.weight, delta}, Attrs().f("alpha", -adapter_.scaling(m)))[0]);
    }
  }

  /// While loading: A and B begin as the principal part of what a weight loses in 4 bit, and with several iterations the weight as what 4
  /// bits keep of W − scaling · B·A. There are two matrices of one weight at a time: W, and what is taken from it.
  void begin_as_stored(LoadGraph& graph) const {
    // A folder that is quantized holds what the weights begin as; nothing says what they have lost.
    const bool lost = graph.config_of("quantization_config") != nullptr;
    if (lost && adapter_.from_file()) return;
    if (lost) invalid("init = \"loftq\": the model's weights are quantized already", "take its folder from before, or leave 'init' out");
    const int64_t iterations = adapter_.init().iterations;
    for (const auto& [m, name] : adapted(graph)) {
      if (!galley_same_text(graph.info(m.weight).format, "four-bit"))
        invalid("init = \"loftq\": the weight of " + m.name + " is not stored in 4 bit, so nothing of it is lost",
                "add use \"quantize-nf4\", or leave that layer out of 'targets'");
      Attrs attrs = layout(m);
      attrs.i("rank", adapter_.rank(m)).f("scale", adapter_.scaling(m));
      galley_tensor begins = m.weight;
      for (int64_t i = 1; i <= iterations; ++i) {
        if (adapter_.from_file() && i == iterations) break;
        const std::string part = name + ".loftq" + std::to_string(i);
        const std::vector<galley_tensor> made =
            graph.node("lora_principal", part.c_str(), {m.weight, graph.pack_and_unpack(m.weight, begins)}, attrs, {0, 0});
        if (i == iterations) {
          graph.begin_as(graph.find(name + ".lora_B.weight"), made[0]);
          graph.begin_as(graph.find(name + ".lora_A.weight"), made[1]);
          break;
        }
        // The sum takes the place of the product, which is of W's size; so the factor is A's.
        const galley_tensor less = graph.node("scale", (part + ".less").c_str(), {made[1]}, Attrs().f("alpha", -adapter_.scaling(m)))[0];
        begins = graph.node("add", (part + ".begins").c_str(), {product(graph, m, less, made[0], part), m.weight})[0];
      }
      if (begins != m.weight) graph.begin_as(m.weight, begins);
    }
  }

  /// B·A as W lies, (out, in) or (in, out): `linear` multiplies rows by a weight in either layout.
  static galley_tensor product(Graph& graph, const Module& m, galley_tensor a, galley_tensor b, const std::string& name) {
    if (!m.transposed) return graph.node("linear", (name + ".delta").c_str(), {b, a}, Attrs().i("transposed", 1))[0];
    return graph.node("linear", (name + ".delta").c_str(), {graph.node("transpose", (name + ".a").c_str(), {a})[0], b})[0];
  }

  /// W·x as the layer makes it, which another strategy may have given another op; without the bias.
  static galley_tensor base_product(Graph& graph, const Module& m, galley_tensor x, const std::string& name) {
    const galley_node_info made = graph.node(m.node);
    Attrs attrs;
    for (uint32_t i = 0; i < made.n_attrs; ++i) attrs.copy(*made.attrs[i]);
    return graph.node(made.op, name.c_str(), {x, m.weight}, attrs)[0];
  }

  /// m / n ∘ (W·x + scaling · B·A·x) + bias. With dropout, as PEFT has it, of the input that some numbers are dropped from, and what the
  /// layer itself makes of them is put in the place of that:
  /// y + m / n ∘ (W·dropped + scaling · B·A·dropped) − W·dropped.
  galley_tensor with_magnitude(Graph& graph, Parts& parts, const Module& m, galley_tensor x, galley_tensor a, galley_tensor b) const {
    const std::string prefix = prefixed(m.name);
    const galley_tensor magnitude =
        parts.make(prefix + ".lora_magnitude_vector", {m.out}, GALLEY_TENSOR_NO_DECAY, {"dora_norm", {m.weight, a, b}, norm_attrs(m)});
    const std::vector<int64_t> shape = {m.out};
    const std::string name = prefix + ".lora_norm";
    const galley_tensor norm = graph.make(Graph::described(name, GALLEY_KIND_TRANSIENT, GALLEY_F32, shape));
    const galley_tensor wx = base_product(graph, m, x, prefix + ".base_layer");
    const galley_tensor u = graph.node("add", (prefix + ".lora").c_str(), {wx, product(graph, m, x, a, b)})[0];
    if (x == m.x) return graph.node("scale_columns", (prefix + ".dora").c_str(), {u, magnitude, norm, m.bias})[0];
    const galley_tensor rest = graph.node("add", (prefix + ".rest").c_str(), {m.y, wx}, Attrs().f("alpha", -1))[0];
    const galley_tensor scaled = graph.node("scale_columns", (prefix + ".dora").c_str(), {u, magnitude, norm})[0];
    return graph.node("add", (prefix + ".dora_sum").c_str(), {rest, scaled})[0];
  }

  Attrs norm_attrs(const Module& m) const {
    Attrs attrs = layout(m);
    attrs.f("scale", adapter_.scaling(m));
    return attrs;
  }

  /// Once a window, the lengths of rows that DoRA divides by.
  void measure(Graph& graph) const {
    for (const auto& [m, name] : adapted(graph))
      graph.node("dora_norm", nullptr, {m.weight, graph.find(name + ".lora_A.weight"), graph.find(name + ".lora_B.weight")}, norm_attrs(m),
                 {graph.find(name + ".lora_norm")});
  }

  /// The modules that have been adapted, and their names in the adapter.
  std::vector<std::pair<Module, std::string>> adapted(const Graph& graph) const {
    std::vector<std::pair<Module, std::string>> out;
    const std::vector<Module> modules = linear_modules(graph, adapter_.file().tensors);
    for (const Module* m : adapter_.choose(graph, modules)) out.emplace_back(*m, prefixed(m->name));
    return out;
  }

  /// scaling · B·A·x. The scaling is part of the product with B, whose sums are in F32: A·x would leave what F16 holds where scaling is
  /// more than 1, and B·A·x need not.
  galley_tensor product(Graph& graph, const Module& m, galley_tensor x, galley_tensor a, galley_tensor b) const {
    const std::string prefix = prefixed(m.name);
    const galley_tensor ax = graph.node("linear", (prefix + ".lora_A").c_str(), {x, a})[0];
    return graph.node("linear", (prefix + ".lora_B").c_str(), {ax, b}, Attrs().f("alpha", adapter_.scaling(m)))[0];
  }

  Begin begin_of_a(const Module& m) const {
    if (adapter_.init().text == "gaussian") return {"random_normal", {}, Attrs().f("std", 1.0 / static_cast<double>(adapter_.rank(m)))};
    const double bound = 1.0 / std::sqrt(static_cast<double>(m.in));  // Kaiming, uniform, with a = √5
    return {"random_uniform", {}, Attrs().f("low", -bound).f("high", bound)};
  }

  void save_adapter(ExportGraph& graph) const {
    galley::peft::save(graph);
    if (!adapter_.init().principal() || merge_) return;
    // scaling · (B·A − B₀·A₀) beside the weight as it was: an adapter of twice the rank (see Adapter::config).
    for (const auto& [m, name] : adapted(graph)) {
      const std::string a = name + ".lora_A.weight", b = name + ".lora_B.weight";
      const auto both = [&](const std::string& of, const Attrs& attrs) {
        graph.export_as(graph.find(of),
                        graph.node("lora_both", (of + ".saved").c_str(), {graph.find(of), graph.find(first_of(of))}, attrs)[0]);
      };
      both(a, {});
      both(b, Attrs().i("columns", 1).f("factor", -1));
    }
  }

  void merge_into_model(ExportGraph& graph) const {
    Merge into(graph);
    for (const auto& [m, name] : adapted(graph)) into.weight(m, merged(graph, m, name));
    adapter_.tokens().merge(graph, into);
    into.taken({".lora_", ".token_adapter."});
  }

  /// W + s·B·A; with a magnitude, m / ‖W + s·B·A‖ ∘ (W + s·B·A).
  galley_tensor merged(Graph& graph, const Module& m, const std::string& prefix) const {
    const std::string name = prefix + ".merged";
    const galley_tensor a = graph.find(prefix + ".lora_A.weight"), b = graph.find(prefix + ".lora_B.weight");
    const auto transpose = [&](galley_tensor t, const char* what) { return graph.node("transpose", (name + what).c_str(), {t})[0]; };
    const galley_tensor delta = product(graph, m, a, b, name);
    galley_tensor sum = graph.node("add", name.c_str(), {m.weight, delta}, Attrs().f("alpha", adapter_.scaling(m)))[0];
    if (adapter_.dora()) {
      const galley_tensor norm = graph.node("dora_norm", (name + ".norm").c_str(), {m.weight, a, b}, norm_attrs(m))[0];
      const galley_tensor magnitude = graph.find(prefix + ".lora_magnitude_vector");
      // `scale_columns`, as it says.
      if (!m.transposed) sum = transpose(sum, ".columns");
      sum = graph.node("scale_columns", (name + ".dora").c_str(), {sum, magnitude, norm})[0];
      if (!m.transposed) sum = transpose(sum, ".rows");
    }
    return sum;
  }

  Adapter adapter_;
  bool merge_;
  double b_lr_factor_;
};

const bool registered = add(strategy<Lora>("lora"));

}  // namespace

GALLEY_PLUGIN("lora", "1.0.0");
