// The modules of a model as PEFT sees them: its linear layers, and what parameters belong to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "galley/cpp/strategy.hpp"

namespace galley::peft {

/// A linear layer of the model. W is (out, in), or (in, out) where `transposed` (GPT-2's Conv1D).
struct Module {
  std::string name;  // as transformers calls it: "model.layers.0.self_attn.q_proj"
  galley_tensor x, weight, bias, y;
  galley_node node;  // that makes y
  int64_t in, out;
  bool transposed;
  bool tied;       // its weight is the embedding's table
  bool head;       // it makes the logits
  bool attention;  // it makes what an attention reads, or reads what one has made, with no other linear layer between
};

/// "base_model.model." before the name of a module or of a parameter: how PEFT's files call what an adapter adds to it.
std::string prefixed(const std::string& name);
/// The way back; "" for a name without it.
std::string without_prefix(const std::string& name);
bool ends_with(const std::string& text, const std::string& end);

/// The tensors of an adapter's file, with their shapes.
using Stored = std::map<std::string, std::vector<int64_t>>;

/// The model's linear layers in order of execution, each weight once; an adapter's own are none of them. A head is called as transformers'
/// classes call it, which for GPT-NeoX since version 5 is another name than that of its weight in files; but where an adapter's file, from
/// before, has it under that name, by that.
std::vector<Module> linear_modules(const sdk::GraphReader& graph, const Stored& stored = {});
std::vector<std::string> names_of(const std::vector<Module>& modules);
/// How a configuration names these modules: by the last word of their names where that means no others, else by whole names.
std::vector<std::string> short_names(const std::vector<Module>& all, const std::vector<const Module*>& chosen);

/// A parameter of the model, and the modules that it belongs to, from the outermost on: "model", "model.layers", … The table of a tied
/// model belongs to the embedding, and once more to the head.
struct Owned {
  galley_tensor parameter;
  std::string name;  // "lm_head.weight" of the head also where it is the embedding's table
  std::string also;  // its second name in transformers' classes: of BERT's "cls.predictions.bias", "cls.predictions.decoder.bias"; or ""
  std::vector<std::string> modules;
  bool of_tied_head;
};
std::vector<Owned> owned_parameters(const sdk::GraphReader& graph, const Stored& stored = {});

}  // namespace galley::peft
