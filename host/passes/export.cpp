// What strategies change of what is saved.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "galley/rewrite.h"
#include "host/passes/exported.hpp"
#include "host/passes/passes.hpp"
#include "host/passes/rewrite.hpp"

namespace galley {
namespace {

Error document_error(const Compilation& c, const Document& d, const std::string& what) {
  return strategy_error(c.strategies, d.use, "document '" + d.file + "' " + what);
}

/// A document describes the tensors beside which it lies, and belongs to one strategy.
Status check_documents(const Compilation& c) {
  std::set<std::string> folders = {"model"};
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t)
    if (const std::string& file = c.graph.tensor(t).saved.file; !file.empty()) folders.insert(file.substr(0, file.rfind('/')));
  std::map<std::string, const Document*> written;
  for (const Document& d : c.draft.exports.documents) {
    if (d.use == no_use) continue;
    if (!folders.contains(d.file.substr(0, d.file.rfind('/'))))
      return document_error(c, d, "lies in a folder into which no tensor is saved");
    const auto [first, fresh] = written.try_emplace(d.file, &d);
    if (!fresh && first->second->use != d.use)
      return document_error(c, d, "is written by " + label(c.strategies, first->second->use) + " as well");
  }
  return ok();
}

/// What is merged is in no format any more.
void as_numbers(Compilation& c) {
  Exports& exports = c.draft.exports;
  exports.in_format.clear();
  std::erase_if(exports.tensors, [](const ExportedTensor& extra) { return ExportedPlace(extra.name).of_format(); });
  std::erase_if(exports.config, [&](const ConfigKey& key) {
    if (key.use == no_use) return false;
    const std::vector<std::string>& of_stored = c.strategies[static_cast<size_t>(key.use)]->spec().config;
    return std::ranges::find(of_stored, key.key) != of_stored.end();
  });
}

}  // namespace

Status export_model(Compilation& c) {
  if (!c.saves()) return ok();
  TRY_STATUS(rewrite_part(c, RewriteOf::Save, Section::Export));
  if (c.options.merges) {
    TRY_STATUS(rewrite_part(c, RewriteOf::Merge, Section::Export));
    if (c.draft.exports.model != GALLEY_EXPORT_MODEL)
      return recipe_error("there is nothing to merge: no strategy of the recipe adds tensors of its own to the model",
                          "leave out --merge, and the model is saved whole");
  }
  if (c.draft.exports.model == GALLEY_EXPORT_MODEL) as_numbers(c);
  return check_documents(c);
}

}  // namespace galley
