// adapter_config.json as PEFT writes it.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "peft/selection.hpp"

namespace galley::peft {

/// In the order of the file: of several patterns that match, PEFT takes the first.
using Json = nlohmann::ordered_json;

/// Where the strategies save it.
constexpr const char *kConfigFile = "adapter/adapter_config.json", *kCardFile = "adapter/README.md";

/// One key of a configuration, of the type that is asked for. Functions throw sdk::Failure with one line that names the file and the key.
class Key {
 public:
  Key(const Json& config, const std::string& path, const char* name);
  explicit operator bool() const { return value_ != nullptr; }
  const Json& value() const { return *value_; }
  [[noreturn]] void wrong(const std::string& what) const;
  double number(double otherwise) const;
  bool boolean(bool otherwise = false) const;
  std::string string(const char* otherwise) const;
  /// By regular expressions, which PEFT takes for the end of a module's name, after a dot or whole.
  std::vector<ByModule> numbers() const;
  /// A regular expression, or a list of names.
  Meant meant() const;
  std::vector<std::string> list() const;
  /// Whole numbers from 0 on: one, or a list.
  std::vector<int64_t> indices() const;
  /// "FILE: 'KEY'"
  std::string place() const { return path_ + ": '" + name_ + "'"; }

 private:
  const std::string& path_;
  const char* name_;
  const Json* value_ = nullptr;
};

/// The text of an adapter's configuration. A folder that only has what leads to one is an error that says where to go.
std::string read_folder_text(const std::string& folder);
/// The file's text as an object, of this `peft_type`.
Json read_config(const std::string& path, const std::string& text, const char* peft_type);

/// Refuses keys that are neither among `read` nor without meaning for what an adapter computes, unless they are null, false or empty.
/// `strategy`: who reads the file.
void refuse_unknown(const Json& config, const std::string& path, const std::vector<const char*>& read, const char* strategy);

/// `layers_to_transform` and `layers_pattern`. `targets` are its target_modules, which have to be a list of names beside them.
Layers read_layers(const Json& config, const std::string& path, const Meant& targets);
/// Whether a configuration means a module: PEFT asks for the layer's number unless `targets` has the module's whole name.
bool means(const Meant& targets, const Layers& layers, const std::string& module);

/// What every configuration has.
Json new_config(const char* peft_type, const std::vector<std::string>& targets);
/// What PEFT calls the model's task, by its class of transformers: "CAUSAL_LM", "SEQ_CLS", …; null where it has no name.
Json task_type(const sdk::Graph& graph);
/// The classifier that a module is or is a part of, which PEFT trains and saves whole where the task is to classify; "": none.
std::string task_module(const sdk::Graph& graph, const std::string& module);
/// Writes it, with the folder of the base model where nothing else stands.
void document(sdk::ModelGraph& graph, Json config);
/// While exporting, of what `document` has written: where more of the model is trained than the adapter, it belongs to no model that was
/// there before, and names none.
void document_trained(sdk::ExportGraph& graph);
/// Whether a key that is a string or a list is the word that means all linear layers but the head.
bool is_all_linear(const Key& targets);

}  // namespace galley::peft
