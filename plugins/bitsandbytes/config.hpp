// What config.json says of a model's folder that bitsandbytes has quantized, under "quantization_config": for the plugins that read such
// folders.
#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "galley/cpp/glob.hpp"
#include "galley/cpp/graph.hpp"
#include "galley/cpp/patterns.hpp"

namespace galley::bitsandbytes {

inline constexpr const char* kConfigKey = "quantization_config";

/// The text as an object. Throws sdk::Failure with the place.
inline nlohmann::json object_of(const std::string& text, const std::string& place) {
  nlohmann::json out = nlohmann::json::parse(text, nullptr, false);
  if (out.is_discarded()) sdk::invalid(place + " is not JSON");
  if (!out.is_object()) sdk::invalid(place + " is not a JSON object");
  return out;
}

/// Null where the object has no such field, or null in it.
inline const nlohmann::json* field(const nlohmann::json& of, const char* name) {
  const auto at = of.find(name);
  return at == of.end() || at->is_null() ? nullptr : &*at;
}
inline bool is_true(const nlohmann::json& of, const char* name) {
  const nlohmann::json* value = field(of, name);
  return value && value->is_boolean() && value->get<bool>();
}
inline std::string text_of(const nlohmann::json& of, const char* name, const std::string& otherwise) {
  const nlohmann::json* value = field(of, name);
  return value && value->is_string() ? value->get<std::string>() : otherwise;
}

/// Whether transformers keeps a module's weight in F32 whatever a folder says (_keep_in_fp32_modules of its classes): it neither loads nor
/// runs a folder that has this one quantized.
inline bool is_kept(const sdk::GraphReader& graph, const std::string& module) {
  const char* type = graph.config_of("model_type");
  const std::string text = type ? type : "";
  return (text == "\"t5\"" || text == "\"mt5\"") && sdk::glob_match_suffix("wo", module);
}

/// The names of a linear node's module: that of its weight in files, and of a head that of its node, where it is another (GPT-NeoX's since
/// version 5 of transformers).
inline std::vector<std::string> modules_of(const galley_node_info& node, const galley_tensor_info& weight) {
  std::vector<std::string> out = {sdk::module_of(node, weight)};
  if (weight.flags & GALLEY_TENSOR_HEAD && std::string(node.name).rfind(out.front(), 0) != 0) out.emplace_back(node.name);
  return out;
}

/// Whether transformers takes a module for one of these, which stay numbers: it looks for the end of a name, not only after a dot, so that
/// "classifier" means "pre_classifier", too.
inline bool is_left(const std::set<std::string>& left, const std::string& module) {
  return std::any_of(left.begin(), left.end(), [&](const std::string& name) {
    return module.size() >= name.size() && module.compare(module.size() - name.size(), std::string::npos, name) == 0;
  });
}

struct Config {
  std::string model;  ///< the folder
  std::string place;  ///< "DIR/config.json: 'quantization_config'"
  nlohmann::json said;
  bool four_bit = false;  ///< else in 8 bit

  /// Nothing where config.json has no such key, or null. Throws sdk::Failure with the place where the folder is quantized by others.
  static std::optional<Config> read(const sdk::GraphReader& graph) {
    const char* text = graph.config_of(kConfigKey);
    Config out;
    out.model = graph.run().model;
    if (!text || out.model.empty() || nlohmann::json::parse(text, nullptr, false).is_null()) return {};
    out.place = out.model + "/config.json: '" + kConfigKey + "'";
    out.said = object_of(text, out.place);
    const std::string method = text_of(out.said, "quant_method", "");
    if (method != "bitsandbytes")
      sdk::invalid(out.place + ": the folder is quantized by '" + method + "', which is not read here", "bitsandbytes in 4 or 8 bit is");
    out.four_bit = is_true(out.said, "load_in_4bit");
    if (!out.four_bit && !is_true(out.said, "load_in_8bit")) sdk::invalid(out.place + ": it says neither load_in_4bit nor load_in_8bit");
    return out;
  }

  /// Whether the folder has weights, or only says how they are stored, which is enough for a plan.
  bool has_weights() const {
    std::error_code error;
    const auto there = [&](const char* file) { return std::filesystem::exists(model + "/" + file, error); };
    return there("model.safetensors") || there("model.safetensors.index.json");
  }

  /// Modules that are not quantized, as patterns of the ends of their names.
  std::vector<std::string> skipped() const {
    std::vector<std::string> out;
    const nlohmann::json* list = field(said, "llm_int8_skip_modules");
    if (!list) return {"lm_head"};  // what transformers leaves out where nobody says
    if (!list->is_array()) sdk::invalid(place + ": 'llm_int8_skip_modules' has to be a list");
    for (const nlohmann::json& module : *list) {
      if (!module.is_string()) sdk::invalid(place + ": 'llm_int8_skip_modules' has to hold names");
      out.push_back(module.get<std::string>());
    }
    return out;
  }

  /// From which size on inputs go in 16 bit.
  double threshold() const {
    const nlohmann::json* value = field(said, "llm_int8_threshold");
    if (!value) return 6.0;
    const double out = value->is_number() ? value->get<double>() : -1;
    if (!(out >= 0) || !std::isfinite(out)) sdk::invalid(place + ": 'llm_int8_threshold' has to be a number of at least 0");
    return out;
  }
};

}  // namespace galley::bitsandbytes
