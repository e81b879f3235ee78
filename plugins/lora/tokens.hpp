// Rows of embeddings and of the head that are trained beside an adapter, as PEFT's trainable_token_indices: a parameter (n, C) that begins
// as these rows and is read in their place, where tokens are looked up and, of a head, where logits are made. A head that shares its weight
// with the embedding reads the embedding's rows, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "peft/config.hpp"
#include "peft/parts.hpp"

namespace galley::lora {

class Tokens {
 public:
  /// None.
  Tokens() = default;
  /// Of a recipe: ids of the input embedding, or tables { module, indices }.
  explicit Tokens(const sdk::Options& options);
  /// The key of a configuration: a list, for the input embedding, or an object of lists by module.
  explicit Tokens(const peft::Key& key);

  bool any() const { return !modules_.empty(); }
  /// Adds the parameters, and puts them where their rows are read. `adapted`: modules with matrices of the adapter; `saved_with`: by which
  /// module that is trained whole a module is saved, or "".
  void adapt(sdk::ModelGraph& graph, peft::Parts& parts, const std::vector<const peft::Module*>& adapted,
             const std::function<std::string(const std::string&)>& saved_with) const;
  /// While exporting one model: puts the rows into the tables.
  void merge(sdk::ExportGraph& graph, peft::Merge& into) const;
  /// The value of the configuration's key; null: none are trained.
  peft::Json config(const sdk::GraphReader& graph) const;

 private:
  /// Rows that are trained, by the module that a recipe or a configuration names.
  struct Of {
    std::string module;  // the end of its name; "": the input embedding
    std::vector<int64_t> ids;
  };
  struct Place;
  std::vector<Place> places(const sdk::GraphReader& graph) const;
  void check_ids() const;

  std::vector<Of> modules_;
  std::string where_;  // for messages
};

}  // namespace galley::lora
