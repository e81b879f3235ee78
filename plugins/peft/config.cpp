#include "peft/config.hpp"

#include <algorithm>
#include <filesystem>

#include "galley/cpp/files.hpp"
#include "peft/parts.hpp"

namespace galley::peft {
namespace {

// What does not change what an adapter computes.
constexpr const char* kWithoutMeaning[] = {
    "auto_mapping", "base_model_name_or_path", "fan_in_fan_out", "inference_mode", "megatron_core", "peft_type",
    "peft_version", "qalora_group_size",       "revision",       "runtime_config", "task_type"};

// null, false, an empty list or object: how PEFT writes what is not used.
bool unused(const Json& value) { return value.is_null() || value == false || ((value.is_array() || value.is_object()) && value.empty()); }

/// Of a value for a message.
std::string shortened(std::string text) {
  constexpr size_t most = 100;
  if (text.size() <= most) return text;
  size_t end = most;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

}  // namespace

Key::Key(const Json& config, const std::string& path, const char* name) : path_(path), name_(name) {
  const auto found = config.find(name);
  if (found != config.end() && !found->is_null()) value_ = &*found;
}

void Key::wrong(const std::string& what) const {
  sdk::invalid(place() + " " + what + (value_ ? ", not " + shortened(value_->dump()) : ""));
}

double Key::number(double otherwise) const {
  if (!value_) return otherwise;
  if (!value_->is_number()) wrong("has to be a number");
  return value_->get<double>();
}

bool Key::boolean(bool otherwise) const {
  if (!value_) return otherwise;
  if (!value_->is_boolean()) wrong("has to be true or false");
  return value_->get<bool>();
}

std::string Key::string(const char* otherwise) const {
  if (!value_) return otherwise;
  if (!value_->is_string()) wrong("has to be a string");
  return value_->get<std::string>();
}

std::vector<ByModule> Key::numbers() const {
  std::vector<ByModule> out;
  if (!value_) return out;
  if (!value_->is_object()) wrong("has to be an object");
  for (const auto& [text, number] : value_->items()) {
    if (!number.is_number()) wrong("has to hold numbers");
    const Pattern pattern("(?:.*\\.)?(?:" + text + ")", place());
    out.push_back({[pattern](const Module& m) { return pattern.matches(m.name); }, number.get<double>()});
  }
  return out;
}

Meant Key::meant() const {
  Meant out;
  if (!value_) return out;
  if (value_->is_string() && *value_ != "") {
    out.pattern.emplace(value_->get<std::string>(), place());
    return out;
  }
  if (!value_->is_array()) wrong("has to be a string or a list of strings");
  out.list = list();
  return out;
}

std::vector<std::string> Key::list() const {
  std::vector<std::string> out;
  if (!value_) return out;
  if (!value_->is_array()) wrong("has to be a list of strings");
  for (const Json& name : *value_) {
    if (!name.is_string()) wrong("has to be a string or a list of strings");
    out.push_back(name.get<std::string>());
  }
  return out;
}

std::vector<int64_t> Key::indices() const {
  std::vector<int64_t> out;
  if (!value_) return out;
  const auto add = [&](const Json& number) {
    if (!number.is_number_integer() || number < 0 || number > 1000000) wrong("has to hold whole numbers from 0 on");
    out.push_back(number.get<int64_t>());
  };
  if (value_->is_array())
    for (const Json& number : *value_) add(number);
  else add(*value_);
  return out;
}

std::string read_folder_text(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path at(folder), below = at / "adapter";
  if (!fs::exists(at / "adapter_config.json", error) && fs::exists(below / "adapter_config.json", error))
    sdk::invalid("'path': '" + folder + "' is a run's folder, and no adapter's", "its adapter is '" + below.string() + "'");
  if (!fs::exists(at / "adapter_model.safetensors", error) && fs::exists(at / "adapter_model.bin", error))
    sdk::invalid("'path': '" + folder + "' has adapter_model.bin, which is not read here, since reading it would run what is in it",
                 "load it in PEFT, and save it with safe_serialization=True");
  return sdk::read_text(folder + "/adapter_config.json");
}

Json read_config(const std::string& path, const std::string& text, const char* peft_type) {
  Json config = Json::parse(text);  // the host has looked at it: read_folder_text()
  if (!config.is_object()) sdk::invalid(path + " is not a JSON object");
  const Key type(config, path, "peft_type");
  if (type.string(peft_type) != peft_type) type.wrong("has to be \"" + std::string(peft_type) + "\"");
  return config;
}

void refuse_unknown(const Json& config, const std::string& path, const std::vector<const char*>& read, const char* strategy) {
  for (const auto& [name, value] : config.items()) {
    const auto is = [n = name](const char* known) { return n == known; };
    if (!std::any_of(read.begin(), read.end(), is) && std::none_of(std::begin(kWithoutMeaning), std::end(kWithoutMeaning), is) &&
        !unused(value))
      Key(config, path, name.c_str())
          .wrong("changes what the adapter computes, and " + std::string(strategy) + " does not do that; it has to be null or false");
  }
}

Layers read_layers(const Json& config, const std::string& path, const Meant& targets) {
  const Key numbers(config, path, "layers_to_transform"), before(config, path, "layers_pattern");
  Layers out;
  out.numbers = numbers.indices();
  if (out.numbers.empty()) return out;
  if (targets.list.empty()) numbers.wrong("stands beside 'target_modules' that are no list of names, which PEFT refuses");
  std::vector<std::string> texts;
  if (before && before.value().is_string()) texts = {before.value().get<std::string>()};
  else texts = before.list();
  for (const std::string& text : texts)
    if (!text.empty()) out.before.push_back(before_number(text, path + ": 'layers_pattern'"));
  return out;
}

bool means(const Meant& targets, const Layers& layers, const std::string& module) {
  if (!targets.targets(module)) return false;
  return layers.mean(module) || std::find(targets.list.begin(), targets.list.end(), module) != targets.list.end();
}

Json new_config(const char* peft_type, const std::vector<std::string>& targets) {
  Json out;
  for (const char* key : {"auto_mapping", "base_model_name_or_path", "modules_to_save", "revision"}) out[key] = nullptr;
  out["peft_type"] = peft_type;
  out["task_type"] = "";  // document() knows
  out["inference_mode"] = true;
  out["target_modules"] = targets;
  return out;
}

Json task_type(const sdk::Graph& graph) {
  const char* json = graph.config_of("architectures");
  const std::string text = json ? json : "";
  const std::pair<const char*, const char*> kinds[] = {{"ForSequenceClassification", "SEQ_CLS"},
                                                       {"ForTokenClassification", "TOKEN_CLS"},
                                                       {"ForConditionalGeneration", "SEQ_2_SEQ_LM"},
                                                       {"ForMaskedLM", ""},
                                                       {"ForCausalLM", "CAUSAL_LM"},
                                                       {"LMHeadModel", "CAUSAL_LM"},
                                                       {"Model", "FEATURE_EXTRACTION"}};
  for (const auto& [ending, type] : kinds)
    if (text.find(std::string(ending) + "\"") != std::string::npos) return *type ? Json(type) : Json(nullptr);
  return "CAUSAL_LM";
}

std::string task_module(const sdk::Graph& graph, const std::string& module) {
  const Json task = task_type(graph);
  if (task != "SEQ_CLS" && task != "TOKEN_CLS") return "";
  return whole_module(module, {"classifier", "score"}, {});
}

namespace {

/// A model card: what the folder is, and how it is loaded. Nothing in it differs from one run of a recipe to another.
std::string card_of(const Json& config) {
  const auto text = [&](const char* key) {
    const auto at = config.find(key);
    return at != config.end() && at->is_string() ? at->get<std::string>() : std::string();
  };
  const std::string type = text("peft_type"), base = text("base_model_name_or_path"), task = text("task_type");
  const std::string loader = task == "SEQ_CLS"        ? "AutoModelForSequenceClassification"
                             : task == "TOKEN_CLS"    ? "AutoModelForTokenClassification"
                             : task == "SEQ_2_SEQ_LM" ? "AutoModelForSeq2SeqLM"
                             : task == "CAUSAL_LM"    ? "AutoModelForCausalLM"
                                                      : "AutoModel";
  return "---\nlibrary_name: peft\n" + (base.empty() ? std::string() : "base_model: " + Json(base).dump() + "\n") +
         "tags:\n- galley\n---\n\n# " + type +
         " adapter\n\nTrained by Galley. `adapter_config.json` says which layers it adapts, and how. To load it with PEFT:\n\n" +
         "    from peft import PeftModel\n    from transformers import " + loader + "\n    base = " + loader +
         ".from_pretrained(BASE)\n    model = PeftModel.from_pretrained(base, FOLDER)\n\nBASE is " +
         (base.empty() ? std::string("the model that lies beside this folder") : "`" + base + "`") +
         ", FOLDER this one. To make one model of both: `galley export FOLDER --merge --out NEW`.\n";
}

}  // namespace

void document(sdk::ModelGraph& graph, Json config) {
  if (Json& task = config["task_type"]; task == "") task = task_type(graph);
  const galley_run_info run = graph.run();
  if (Json& base = config["base_model_name_or_path"]; base.is_null() && run.model && *run.model) base = run.model;
  graph.document(kConfigFile, config.dump(2) + "\n");
  graph.document(kCardFile, card_of(config));
}

void document_trained(sdk::ExportGraph& graph) {
  if (!trains_model(graph)) return;
  Json config = Json::parse(graph.document_of(kConfigFile));
  config["base_model_name_or_path"] = nullptr;
  graph.document(kConfigFile, config.dump(2) + "\n");
  graph.document(kCardFile, card_of(config));
}

bool is_all_linear(const Key& targets) {
  if (!targets || !targets.value().is_string()) return false;
  std::string word = targets.value().get<std::string>();
  std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word == "all-linear";
}

}  // namespace galley::peft
