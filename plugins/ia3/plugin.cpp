// (IA)³ (Liu et al. 2022, "Few-shot parameter-efficient fine-tuning is better and cheaper than in-context learning", arXiv:2205.05638): a
// trained vector, of ones at first, multiplies what a linear layer makes, with its bias, or in a feed-forward layer what it reads.
// Parameters and files are PEFT's.
#include <algorithm>

#include "galley/cpp/files.hpp"
#include "peft/config.hpp"
#include "peft/parts.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::peft;
using json = Json;

const std::vector<const char*> kRead = {"exclude_modules", "feedforward_modules", "init_ia3_weights", "modules_to_save", "target_modules"};

class Ia3 {
 public:
  explicit Ia3(const Options& options) : merge_(options.boolean("merge")) {
    if (options.given("path")) {
      for (const char* name : {"targets", "exclude", "feedforward", "modules_to_save"})
        if (options.given(name))
          invalid(std::string("'") + name + "' cannot stand beside 'path': the adapter's own configuration decides it");
      read(options.string("path"));
      return;
    }
    targets_ = words_of(options.strings("targets"), "targets");
    if (targets_.empty())
      invalid("give the 'targets' of a new adapter, or the 'path' of one to continue",
              "its authors take keys, values and the last layer of the feed-forward part: { \"k_proj\", \"v_proj\", \"down_proj\" }");
    exclude_ = words_of(options.strings("exclude"), "exclude");
    feedforward_ = words_of(options.strings("feedforward"), "feedforward");
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

  void claim(const GraphReader&, const Claims& claims) const { claim_adapter(claims, "ia3"); }

 private:
  void read(const std::string& folder) {
    const std::string path = folder + "/adapter_config.json";
    text_ = read_folder_text(folder);
    const json config = read_config(path, text_, "IA3");
    refuse_unknown(config, path, kRead, "ia3");
    const auto key = [&](const char* name) { return Key(config, path, name); };
    all_linear_ = is_all_linear(key("target_modules"));
    if (!all_linear_) target_modules_ = key("target_modules").meant();
    exclude_modules_ = key("exclude_modules").meant();
    feedforward_modules_ = key("feedforward_modules").meant();
    modules_to_save_ = key("modules_to_save").list();
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
        if (!exclude_modules_.targets(m.name) && (all_linear_ ? !m.head : target_modules_.targets(m.name))) out.push_back(&m);
    } else {
      out = galley::peft::choose(modules, targets_, exclude_);
    }
    std::erase_if(out, [&](const Module* m) { return !saved_with(graph, m->name).empty(); });
    for (const Word& word : feedforward_)
      if (std::none_of(out.begin(), out.end(), [&](const Module* m) { return word.means(*m); }))
        invalid("'feedforward': no adapted layer is called '" + word.text() + "'", "name it in 'targets', too");
    if (out.empty())
      invalid(file_.there() ? "none of the modules that '" + file_.path + "' was made for is a linear layer of this model"
                            : "'modules_to_save' leaves no linear layer of 'targets' to adapt");
    return out;
  }

  bool is_feedforward(const Module& m) const {
    if (!file_.there()) return std::any_of(feedforward_.begin(), feedforward_.end(), [&](const Word& word) { return word.means(m); });
    if (feedforward_modules_.pattern) return feedforward_modules_.pattern->matches(m.name);
    // PEFT looks for the end of a name, not only after a dot.
    return std::any_of(feedforward_modules_.list.begin(), feedforward_modules_.list.end(),
                       [&](const std::string& name) { return ends_with(m.name, name); });
  }

  void adapt(ModelGraph& graph) const {
    const std::vector<Module> modules = linear_modules(graph, file_.tensors);
    if (has_own(graph, ".ia3_l")) invalid("the recipe uses \"ia3\" twice", "name all layers in one");
    const std::vector<const Module*> chosen = choose(graph, modules);
    Parts parts(graph, file_, [&](const std::string& module) { return saved_with(graph, module); });
    for (const Module* m : chosen) {
      const std::string name = prefixed(m->name) + ".ia3_l";
      const bool input = is_feedforward(*m);
      const std::vector<int64_t> shape = input ? std::vector<int64_t>{1, m->in} : std::vector<int64_t>{m->out, 1};
      const galley_tensor l = parts.make(name, shape, GALLEY_TENSOR_NO_DECAY, {"fill", {}, Attrs().f("value", 1)});
      const galley_tensor scaled = graph.node("scale_columns", (prefixed(m->name) + ".ia3").c_str(), {input ? m->x : m->y, l})[0];
      if (input) graph.set_input(graph.info(m->y).producer, 0, scaled);
      else graph.replace(m->y, scaled);
    }
    std::vector<std::string> all;
    const std::vector<std::string> saved = parts.take_modules(&all);
    check_whole(to_save_, all);
    parts.check_all_used(modules, "ia3");
    document(graph, config(modules, chosen, saved));
  }

  json config(const std::vector<Module>& modules, const std::vector<const Module*>& chosen, std::vector<std::string> saved) const {
    if (file_.there()) return json::parse(text_);
    std::vector<const Module*> inputs, others;
    for (const Module* m : chosen) (is_feedforward(*m) ? inputs : others).push_back(m);
    // The one list has to be a part of the other, word by word. PEFT looks for the end of a name, not only after a dot: "o" means "wo", too.
    std::vector<std::string> feedforward = short_names(modules, inputs);
    if (std::any_of(feedforward.begin(), feedforward.end(), [&](const std::string& word) {
          return std::any_of(others.begin(), others.end(), [&](const Module* m) { return ends_with(m->name, word); });
        })) {
      feedforward = {};
      for (const Module* m : inputs) feedforward.push_back(m->name);
    }
    std::vector<std::string> targets = short_names(modules, others);
    targets.insert(targets.end(), feedforward.begin(), feedforward.end());
    json out = new_config("IA3", targets);
    out["feedforward_modules"] = feedforward;
    out["fan_in_fan_out"] = std::all_of(chosen.begin(), chosen.end(), [](const Module* m) { return m->transposed; });
    out["init_ia3_weights"] = true;
    if (!saved.empty()) out["modules_to_save"] = std::move(saved);
    return out;
  }

  void merge_into_model(ExportGraph& graph) const {
    Merge into(graph);
    const std::vector<Module> modules = linear_modules(graph, file_.tensors);
    for (const Module* m : choose(graph, modules)) {
      const std::string name = prefixed(m->name);
      const galley_tensor l = graph.find(name + ".ia3_l");
      const auto node = [&](const char* op, const char* what, const std::vector<galley_tensor>& inputs) {
        return graph.node(op, (name + ".merged" + what).c_str(), inputs)[0];
      };
      // Columns are what is multiplied: W's inputs, or where it is transposed its outputs.
      const bool turns = is_feedforward(*m) == m->transposed;
      galley_tensor w = turns ? node("transpose", ".turned", {m->weight}) : m->weight;
      w = node("scale_columns", "", {w, l});
      into.weight(*m, turns ? node("transpose", ".back", {w}) : w);
      if (m->bias && !is_feedforward(*m)) graph.export_as(m->bias, node("scale_columns", ".bias", {m->bias, l}));
    }
    into.taken({".ia3_l"});
  }

  bool merge_ = false, all_linear_ = false;
  std::string text_;
  std::vector<Word> targets_, exclude_, feedforward_, to_save_;
  Meant target_modules_, exclude_modules_, feedforward_modules_;
  std::vector<std::string> modules_to_save_;
  AdapterFile file_;
};

const bool registered = add(strategy<Ia3>("ia3"));

}  // namespace

GALLEY_PLUGIN("ia3", "1.0.0");
