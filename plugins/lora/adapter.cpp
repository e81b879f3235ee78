#include "adapter.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "galley/cpp/files.hpp"
#include "galley/cpp/glob.hpp"

namespace galley::lora {
namespace {

using json = peft::Json;
using peft::Key;
using sdk::invalid;

// What `read_config` takes. The last three are of an init_lora_weights that is no other.
const std::vector<const char*> kRead = {"alpha_pattern",
                                        "bias",
                                        "exclude_modules",
                                        "init_lora_weights",
                                        "lora_alpha",
                                        "lora_dropout",
                                        "r",
                                        "rank_pattern",
                                        "target_modules",
                                        "modules_to_save",
                                        "loftq_config",
                                        "use_dora",
                                        "use_rslora",
                                        "layers_pattern",
                                        "layers_to_transform",
                                        "trainable_token_indices",
                                        "corda_config",
                                        "eva_config",
                                        "lora_ga_config"};

bool is_scale(double alpha) { return std::isfinite(alpha) && alpha > 0; }
bool whole_number(double x, double most) { return x >= 1 && x <= most && std::floor(x) == x; }
bool whole_rank(double rank) { return whole_number(rank, 65536); }

/// Fails where PEFT would not know it either.
bool read_init(const std::string& text, Init* out) {
  *out = {text, 0};
  if (text == "true" || text == "gaussian" || text == "orthogonal" || text == "pissa" || text == "olora" || text == "loftq") return true;
  const std::string fast = "pissa_niter_";
  if (text.rfind(fast, 0) != 0 || text.size() == fast.size() || text.size() > fast.size() + 4) return false;
  if (text.find_first_not_of("0123456789", fast.size()) != std::string::npos) return false;
  out->iterations = std::stoll(text.substr(fast.size()));
  return true;
}

/// A list of tables { match, NAME } of a recipe. Their words are added to `all`.
std::vector<peft::ByModule> by_module(const sdk::Options& options, const char* option, const char* name, std::vector<peft::Word>* all) {
  std::vector<peft::ByModule> out;
  for (const sdk::Options& entry : options.tables(option)) {
    const std::vector<peft::Word> words = peft::words_of(entry.strings("match"), option);
    all->insert(all->end(), words.begin(), words.end());
    out.push_back({[words](const Module& m) { return std::any_of(words.begin(), words.end(), [&](const auto& w) { return w.means(m); }); },
                   std::string(name) == "rank" ? static_cast<double>(entry.integer(name)) : entry.number(name)});
  }
  return out;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

json number(double x) {
  if (std::floor(x) == x && std::abs(x) < 1e15) return static_cast<int64_t>(x);
  return x;
}

/// Modules whose value is not `usual`, as PEFT's patterns.
template <class Value>
json patterns(const std::vector<Module>& modules, const std::vector<const Module*>& chosen, double usual, const Value& value) {
  std::map<double, std::vector<const Module*>> of;
  for (const Module* m : chosen)
    if (value(*m) != usual) of[value(*m)].push_back(m);
  json out = json::object();
  for (const auto& [x, with] : of)
    for (const std::string& name : peft::short_names(modules, with)) out[name] = number(x);
  return out;
}

}  // namespace

Adapter::Adapter(const sdk::Options& options) {
  if (options.given("path")) {
    for (const char* name :
         {"rank", "alpha", "targets", "exclude", "layers_to_transform", "layers_pattern", "rslora", "dora", "init", "loftq_iter", "bias",
          "rank_pattern", "alpha_pattern", "modules_to_save", "trainable_token_indices", "trainable_token_modules"})
      if (options.given(name))
        invalid(std::string("'") + name + "' cannot stand beside 'path': the adapter's own configuration decides it");
    read_folder(options.string("path"));
    dropout_ = options.number("dropout", dropout_);
  } else {
    if (!options.given("rank")) invalid("give a 'rank' for a new adapter, or the 'path' of one to continue");
    take_options(options);
  }
}

void Adapter::take_options(const sdk::Options& options) {
  rank_ = options.integer("rank");
  alpha_ = options.number("alpha", static_cast<double>(rank_));
  rslora_ = options.boolean("rslora", false);
  dora_ = options.boolean("dora", false);
  dropout_ = options.number("dropout", 0);
  bias_ = options.string("bias", "none");
  const std::string init = options.string("init", "default");
  if (init == "true" || !read_init(init == "default" ? "true" : init, &init_))
    invalid("init = \"" + init + "\"",
            "it has to be \"default\", \"gaussian\", \"orthogonal\", \"pissa\", \"pissa_niter_16\", \"olora\" or \"loftq\"");
  if (options.given("loftq_iter") && !init_.loftq()) invalid("'loftq_iter' belongs to init = \"loftq\"");
  if (init_.loftq()) init_.iterations = options.integer("loftq_iter", 1);
  std::vector<std::string> targets = options.strings("targets");
  if (targets.empty()) targets = {"all-linear"};
  targets_ = peft::words_of(targets, "targets");
  exclude_ = peft::words_of(options.strings("exclude"), "exclude");
  layers_ = peft::layers_of(options);
  to_save_ = peft::words_of(options.strings("modules_to_save"), "modules_to_save");
  tokens_ = Tokens(options);
  ranks_ = by_module(options, "rank_pattern", "rank", &pattern_words_);
  alphas_ = by_module(options, "alpha_pattern", "alpha", &pattern_words_);
}

void Adapter::read_folder(const std::string& folder) {
  text_ = peft::read_folder_text(folder);
  read_config(folder + "/adapter_config.json");
  file_ = peft::AdapterFile(folder + "/adapter_model.safetensors");
}

void Adapter::read_config(const std::string& path) {
  const json config = peft::read_config(path, text_, "LORA");
  const auto key = [&](const char* name) { return Key(config, path, name); };
  peft::refuse_unknown(config, path, kRead, "lora");
  const Key init = key("init_lora_weights");
  std::string how = !init || init.value().is_boolean() ? "true" : init.string("true");
  const std::string word = lower(how);
  if (word == "gaussian" || word == "olora") how = word;
  if (how == "eva") how = "true";  // A began as data said; the weights are what they were
  if (word == "mica") init.wrong("trains A alone, since B holds singular vectors of the weight, and lora trains both");
  if (how.rfind("pissa_niter_", 0) == 0)
    invalid(path + ": 'init_lora_weights' is \"" + how +
                "\", which begins with random numbers that are in no file: what the weights are beside A and B cannot be found again",
            "save the adapter from PEFT with path_initial_model_for_weight_conversion, which makes one for the weights as they were");
  if (!read_init(how, &init_))
    init.wrong(
        "changes the base weights in a way that lora does not know; it has to be true, false, \"gaussian\", \"orthogonal\", \"pissa\", "
        "\"olora\", \"eva\" or \"loftq\"");
  if (init_.loftq()) {
    const Key loftq = key("loftq_config");
    if (!loftq || !loftq.value().is_object()) loftq.wrong("has to be an object, since init_lora_weights is \"loftq\"");
    const double bits = Key(loftq.value(), path, "loftq_bits").number(4), times = Key(loftq.value(), path, "loftq_iter").number(1);
    if (bits != 4) loftq.wrong("has to have \"loftq_bits\": 4");
    if (!whole_number(times, 100)) loftq.wrong("has to have a whole number from 1 to 100 as \"loftq_iter\"");
    init_.iterations = static_cast<int64_t>(times);
  }

  const double rank = key("r").number(8);
  if (!whole_rank(rank)) key("r").wrong("has to be a whole number from 1 on");
  rank_ = static_cast<int64_t>(rank);
  alpha_ = key("lora_alpha").number(8);
  if (!is_scale(alpha_)) key("lora_alpha").wrong("has to be a positive number");
  rslora_ = key("use_rslora").boolean();
  dora_ = key("use_dora").boolean();
  dropout_ = key("lora_dropout").number(0);
  if (!(dropout_ >= 0 && dropout_ < 1)) key("lora_dropout").wrong("has to lie in [0, 1)");
  ranks_ = key("rank_pattern").numbers();
  alphas_ = key("alpha_pattern").numbers();
  for (const peft::ByModule& entry : ranks_)
    if (!whole_rank(entry.value)) key("rank_pattern").wrong("has to hold whole numbers from 1 on");
  for (const peft::ByModule& entry : alphas_)
    if (!is_scale(entry.value)) key("alpha_pattern").wrong("has to hold positive numbers");
  bias_ = key("bias").string("none");
  if (bias_ != "none" && bias_ != "lora_only" && bias_ != "all") key("bias").wrong("has to be \"none\", \"lora_only\" or \"all\"");
  modules_to_save_ = key("modules_to_save").list();
  tokens_ = Tokens(key("trainable_token_indices"));
  all_linear_ = peft::is_all_linear(key("target_modules"));
  if (!all_linear_) target_modules_ = key("target_modules").meant();
  exclude_modules_ = key("exclude_modules").meant();
  layers_ = peft::read_layers(config, path, target_modules_);
  if (!all_linear_ && target_modules_.empty()) key("target_modules").wrong("names no modules");
}

std::vector<const Module*> Adapter::choose(const sdk::Graph& graph, const std::vector<Module>& modules) const {
  std::vector<const Module*> out = from_file() ? choose_by_file(modules) : peft::choose(modules, targets_, exclude_);
  if (!from_file()) peft::keep(layers_, &out);
  std::erase_if(out, [&](const Module* m) { return !saved_with(graph, m->name).empty(); });
  for (const peft::Word& word : pattern_words_)
    if (std::none_of(out.begin(), out.end(), [&](const Module* m) { return word.means(*m); })) {
      std::vector<std::string> names;
      for (const Module* m : out) names.push_back(m->name);
      invalid(word.place() + ": no adapted layer is called '" + word.text() + "'; " + sdk::nearest_names(word.text(), names));
    }
  if (!out.empty()) return out;
  if (from_file()) invalid("none of the modules that '" + file_.path + "' was made for is a linear layer of this model");
  invalid("'modules_to_save' leaves no linear layer of 'targets' to adapt");
}

std::vector<const Module*> Adapter::choose_by_file(const std::vector<Module>& modules) const {
  if (modules.empty()) invalid("the model has no linear layer to adapt");
  std::vector<const Module*> out;
  for (const Module& m : modules)
    if (!exclude_modules_.targets(m.name) && (all_linear_ ? !m.head : peft::means(target_modules_, layers_, m.name))) out.push_back(&m);
  return out;
}

int64_t Adapter::rank(const Module& m) const { return static_cast<int64_t>(peft::look_up(ranks_, m, static_cast<double>(rank_))); }

double Adapter::scaling(const Module& m) const {
  const double alpha = peft::look_up(alphas_, m, alpha_), r = static_cast<double>(rank(m));
  return alpha / (rslora_ ? std::sqrt(r) : r);
}

std::string Adapter::saved_with(const sdk::Graph& graph, const std::string& module) const {
  const std::string head = peft::task_module(graph, module);
  return head.empty() ? peft::whole_module(module, modules_to_save_, to_save_) : head;
}

void Adapter::check_saved(const std::vector<std::string>& modules) const { peft::check_whole(to_save_, modules); }

json Adapter::new_config(const sdk::GraphReader& graph, const std::vector<Module>& modules, const std::vector<const Module*>& chosen,
                         std::vector<std::string> saved) const {
  json out = peft::new_config("LORA", peft::short_names(modules, chosen));
  for (const char* key : {"exclude_modules", "layer_replication", "layers_pattern", "layers_to_transform"}) out[key] = nullptr;
  out["init_lora_weights"] = true;
  out["r"] = rank_;
  out["lora_alpha"] = number(alpha_);
  out["rank_pattern"] = patterns(modules, chosen, static_cast<double>(rank_), [&](const Module& m) { return rank(m); });
  out["alpha_pattern"] = patterns(modules, chosen, alpha_, [&](const Module& m) { return peft::look_up(alphas_, m, alpha_); });
  out["fan_in_fan_out"] = std::all_of(chosen.begin(), chosen.end(), [](const Module* m) { return m->transposed; });
  out["bias"] = bias_;
  out["use_rslora"] = rslora_;
  out["use_dora"] = dora_;
  if (!saved.empty()) out["modules_to_save"] = std::move(saved);
  if (tokens_.any()) out["trainable_token_indices"] = tokens_.config(graph);
  return out;
}

json Adapter::config(const sdk::GraphReader& graph, const std::vector<Module>& modules, const std::vector<const Module*>& chosen,
                     std::vector<std::string> saved) const {
  json out = from_file() ? json::parse(text_) : new_config(graph, modules, chosen, std::move(saved));
  out["lora_dropout"] = dropout_;
  if (init_.loftq() && !from_file() && init_.iterations > 1) {  // the weight does not begin as what is stored of it
    out["init_lora_weights"] = "loftq";
    out["loftq_config"] = {{"loftq_bits", 4}, {"loftq_iter", init_.iterations}};
  }
  if (!init_.principal()) return out;
  // Twice the rank, with the same scaling.
  const double of_alpha = rslora_ ? std::sqrt(2.0) : 2;
  const auto scale = [](json& x, double factor) { x = number(x.get<double>() * factor); };
  out["init_lora_weights"] = true;
  out["r"] = 2 * rank_;
  out["lora_alpha"] = number(of_alpha * alpha_);
  for (const auto& [key, factor] : {std::pair("rank_pattern", 2.0), std::pair("alpha_pattern", of_alpha)})
    if (out.contains(key) && out[key].is_object())
      for (auto& [pattern, x] : out[key].items()) scale(x, factor);
  return out;
}

}  // namespace galley::lora
