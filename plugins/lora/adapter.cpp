#include "adapter.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "galley/cpp/files.hpp"

namespace galley::lora {
namespace {

using nlohmann::json;
using sdk::invalid;

// What does not change what an adapter computes.
constexpr const char* kWithoutMeaning[] = {"auto_mapping",        "base_model_name_or_path",
                                           "ensure_weight_tying", "fan_in_fan_out",
                                           "inference_mode",      "layers_pattern",
                                           "megatron_core",       "peft_version",
                                           "qalora_group_size",   "revision",
                                           "runtime_config",      "task_type"};
// What `read_config` takes.
constexpr const char* kRead[] = {"alpha_pattern", "bias", "exclude_modules", "init_lora_weights", "lora_alpha", "lora_dropout",
                                 "peft_type",     "r",    "rank_pattern",    "target_modules",    "use_rslora"};

template <size_t N>
bool among(const std::string& key, const char* const (&names)[N]) {
  return std::any_of(names, names + N, [&](const char* name) { return key == name; });
}

// null, false, an empty list or object: how PEFT writes what is not used.
bool unused(const json& value) { return value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty()); }

bool is_scale(double alpha) { return std::isfinite(alpha) && alpha > 0; }

bool listed(const std::vector<std::string>& names, const std::string& module) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return module == name ||
           (module.size() > name.size() && module.compare(module.size() - name.size() - 1, std::string::npos, "." + name) == 0);
  });
}

double look_up(const std::vector<std::pair<Pattern, double>>& patterns, const std::string& module, double otherwise) {
  const auto found = std::find_if(patterns.begin(), patterns.end(), [&](const auto& entry) { return entry.first.matches(module); });
  return found == patterns.end() ? otherwise : found->second;
}

bool meant(const std::vector<std::string>& names, const std::optional<Pattern>& pattern, const std::string& module) {
  return pattern ? pattern->matches(module) : listed(names, module);
}

// One key of the configuration, of the type that is asked for.
class Key {
 public:
  Key(const json& config, const std::string& path, const char* name) : path_(path), name_(name) {
    const auto found = config.find(name);
    if (found != config.end() && !found->is_null()) value_ = &*found;
  }
  explicit operator bool() const { return value_ != nullptr; }
  std::string place() const { return path_ + ": '" + name_ + "'"; }
  const json& value() const { return *value_; }
  [[noreturn]] void wrong(const std::string& what) const { invalid(place() + " " + what + (value_ ? ", not " + value_->dump() : "")); }
  double number(double otherwise) const {
    if (!value_) return otherwise;
    if (!value_->is_number()) wrong("has to be a number");
    return value_->get<double>();
  }
  bool boolean() const {
    if (value_ && !value_->is_boolean()) wrong("has to be true or false");
    return value_ && value_->get<bool>();
  }
  std::string string(const char* otherwise) const {
    if (!value_) return otherwise;
    if (!value_->is_string()) wrong("has to be a string");
    return value_->get<std::string>();
  }
  /// Of modules by regular expressions, which PEFT takes for the end of a module's name, behind a dot or whole.
  std::vector<std::pair<Pattern, double>> numbers() const {
    std::vector<std::pair<Pattern, double>> out;
    if (!value_) return out;
    if (!value_->is_object()) wrong("has to be an object");
    for (const auto& [pattern, number] : value_->items()) {
      if (!number.is_number()) wrong("has to hold numbers");
      out.emplace_back(Pattern("(?:.*\\.)?(?:" + pattern + ")", place()), number.get<double>());
    }
    return out;
  }
  /// A regular expression, or a list of names.
  void names(std::vector<std::string>* list, std::optional<Pattern>* pattern) const {
    if (!value_) return;
    if (value_->is_string() && *value_ != "") {
      pattern->emplace(value_->get<std::string>(), place());
      return;
    }
    if (!value_->is_array()) wrong("has to be a string or a list of strings");
    for (const json& name : *value_) {
      if (!name.is_string()) wrong("has to be a string or a list of strings");
      list->push_back(name.get<std::string>());
    }
  }

 private:
  const std::string& path_;
  const char* name_;
  const json* value_ = nullptr;
};

bool whole_rank(double rank) { return rank >= 1 && rank <= 65536 && std::floor(rank) == rank; }

}  // namespace

Adapter Adapter::read(const std::string& folder) {
  Adapter out;
  out.file_ = folder + "/adapter_model.safetensors";
  out.read_config(folder + "/adapter_config.json");
  out.read_header();
  return out;
}

void Adapter::read_config(const std::string& path) {
  text_ = sdk::read_text(path);
  json config;
  try {
    config = json::parse(text_);
  } catch (const json::exception& wrong) {
    invalid(path + " is not a JSON object: " + wrong.what());
  }
  if (!config.is_object()) invalid(path + " is not a JSON object");
  const auto key = [&](const char* name) { return Key(config, path, name); };

  if (key("peft_type").string("LORA") != "LORA") key("peft_type").wrong("has to be \"LORA\"");
  for (const auto& [name, value] : config.items())
    if (!among(name, kRead) && !among(name, kWithoutMeaning) && !unused(value))
      Key(config, path, name.c_str()).wrong("changes what the adapter computes, and lora does not do that; it has to be null or false");
  // Other ways to begin alter the base weights, which the adapter then belongs to.
  const Key init = key("init_lora_weights");
  if (init && !init.value().is_boolean() && init.value() != "gaussian" && init.value() != "orthogonal")
    init.wrong("changes the base weights, and lora does not do that; it has to be true, false, \"gaussian\" or \"orthogonal\"");

  const double rank = key("r").number(8);
  if (!whole_rank(rank)) key("r").wrong("has to be a whole number from 1 on");
  rank_ = static_cast<int64_t>(rank);
  alpha_ = key("lora_alpha").number(8);
  if (!is_scale(alpha_)) key("lora_alpha").wrong("has to be a positive number");
  rslora_ = key("use_rslora").boolean();
  dropout_ = key("lora_dropout").number(0);
  if (!(dropout_ >= 0 && dropout_ < 1)) key("lora_dropout").wrong("has to lie in [0, 1)");
  rank_pattern_ = key("rank_pattern").numbers();
  alpha_pattern_ = key("alpha_pattern").numbers();
  for (const auto& [pattern, value] : rank_pattern_)
    if (!whole_rank(value)) key("rank_pattern").wrong("has to hold whole numbers from 1 on");
  for (const auto& [pattern, value] : alpha_pattern_)
    if (!is_scale(value)) key("alpha_pattern").wrong("has to hold positive numbers");
  bias_ = key("bias").string("none");
  if (bias_ != "none" && bias_ != "lora_only" && bias_ != "all") key("bias").wrong("has to be \"none\", \"lora_only\" or \"all\"");
  all_linear_ = key("target_modules") && key("target_modules").value() == "all-linear";
  if (!all_linear_) key("target_modules").names(&target_list_, &target_pattern_);
  key("exclude_modules").names(&exclude_list_, &exclude_pattern_);
  if (!all_linear_ && target_list_.empty() && !target_pattern_) key("target_modules").wrong("names no modules");
}

void Adapter::read_header() {
  for (sdk::FileTensor& t : sdk::read_tensors(file_)) tensors_[t.name] = std::move(t.shape);
  if (tensors_.empty()) invalid("'" + file_ + "' holds no tensors");
}

bool Adapter::targets(const std::string& module) const {
  return !meant(exclude_list_, exclude_pattern_, module) && (all_linear_ || meant(target_list_, target_pattern_, module));
}

int64_t Adapter::rank(const std::string& module) const {
  return static_cast<int64_t>(look_up(rank_pattern_, module, static_cast<double>(rank_)));
}

double Adapter::scaling(const std::string& module) const {
  const double alpha = look_up(alpha_pattern_, module, alpha_), r = static_cast<double>(rank(module));
  return alpha / (rslora_ ? std::sqrt(r) : r);
}

std::string Adapter::config(const std::vector<std::string>& targets, bool fan_in_fan_out) const {
  json out;
  if (from_file()) {
    out = json::parse(text_);
  } else {
    for (const char* key : {"auto_mapping", "base_model_name_or_path", "exclude_modules", "layer_replication", "layers_pattern",
                            "layers_to_transform", "modules_to_save", "revision"})
      out[key] = nullptr;
    out["peft_type"] = "LORA";
    out["task_type"] = "CAUSAL_LM";
    out["inference_mode"] = true;
    out["init_lora_weights"] = true;
    out["r"] = rank_;
    if (std::floor(alpha_) == alpha_ && std::abs(alpha_) < 1e15) out["lora_alpha"] = static_cast<int64_t>(alpha_);
    else out["lora_alpha"] = alpha_;
    out["rank_pattern"] = json::object();
    out["alpha_pattern"] = json::object();
    out["target_modules"] = targets;
    out["fan_in_fan_out"] = fan_in_fan_out;
    out["bias"] = bias_;
    out["use_rslora"] = rslora_;
    out["use_dora"] = false;
  }
  out["lora_dropout"] = dropout_;
  return out.dump(2) + "\n";
}

}  // namespace galley::lora
