// Rewrites of the model, and of what is saved.
#include "galley/rewrite.h"

#include <map>
#include <set>

#include "host/passes/passes.hpp"

namespace galley {
namespace {

Status rewrite_segment(Compilation& c, uint32_t segment, Section section) {
  for (size_t i = 0; i < c.strategies.size(); ++i) {
    const LoadedStrategy& s = *c.strategies[i];
    if (!s.rewrite()) continue;
    TRY_STATUS(call_strategy(c.graph, c.strategies, {section, static_cast<int>(i)}, "rewrite", [&](galley_error* error) {
      return s.rewrite()->rewrite(s.instance(), Graph::verbs(), c.graph.handle(), segment, error);
    }));
    if (section == Section::Forward) c.graph.sort(section);
  }
  return ok();
}

Error document_error(const Compilation& c, const Document& d, const std::string& what) {
  return plugin_error(label(c.strategies, d.use) + ", plugin '" + c.strategies[static_cast<size_t>(d.use)]->plugin().manifest.id +
                      "': document '" + d.file + "' " + what);
}

/// A document describes the tensors beside which it lies, and belongs to one strategy.
Status check_documents(const Compilation& c) {
  std::set<std::string> folders = {"model"};
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t)
    if (const std::string& file = c.graph.tensor(t).file; !file.empty()) folders.insert(file.substr(0, file.rfind('/')));
  std::map<std::string, const Document*> written;
  for (const Document& d : c.graph.documents) {
    if (d.use == no_use) continue;
    if (!folders.contains(d.file.substr(0, d.file.rfind('/'))))
      return document_error(c, d, "lies in a folder into which no tensor is saved");
    const auto [first, fresh] = written.try_emplace(d.file, &d);
    if (!fresh && first->second->use != d.use)
      return document_error(c, d, "is written by " + label(c.strategies, first->second->use) + " as well");
  }
  return ok();
}

}  // namespace

Status rewrite(Compilation& c) {
  c.graph.sort(Section::Forward);
  return rewrite_segment(c, GALLEY_SEGMENT_MODEL, Section::Forward);
}

Status export_model(Compilation& c) {
  if (!c.saves()) return ok();
  TRY_STATUS(rewrite_segment(c, GALLEY_SEGMENT_EXPORT, Section::Export));
  if (c.options.merges) {
    TRY_STATUS(rewrite_segment(c, GALLEY_SEGMENT_MERGE, Section::Export));
    if (c.graph.export_model != GALLEY_EXPORT_MODEL)
      return recipe_error("there is nothing to merge: no strategy of the recipe adds tensors of its own to the model",
                          "leave out --merge, and the model is saved whole");
  }
  TRY_STATUS(check_documents(c));
  if (c.options.purpose == Purpose::Export) keep_exported(c);
  return ok();
}

}  // namespace galley
