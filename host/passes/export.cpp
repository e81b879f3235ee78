// What strategies change of what is saved. A program that only exports needs no more than the tensors that files are made from, and what
// these are made from.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "galley/rewrite.h"
#include "host/passes/passes.hpp"
#include "host/passes/rewrite.hpp"

namespace galley {
namespace {

Error document_error(const Compilation& c, const Document& d, const std::string& what) {
  return plugin_error(label(c.strategies, d.use) + ", plugin '" + c.strategies[static_cast<size_t>(d.use)]->plugin().manifest.id +
                      "': document '" + d.file + "' " + what);
}

/// A document describes the tensors beside which it lies, and belongs to one strategy.
Status check_documents(const Compilation& c) {
  std::set<std::string> folders = {"model"};
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t)
    if (const std::string& file = c.graph.tensor(t).saved.file; !file.empty()) folders.insert(file.substr(0, file.rfind('/')));
  std::map<std::string, const Document*> written;
  for (const Document& d : c.graph.exports.documents) {
    if (d.use == no_use) continue;
    if (!folders.contains(d.file.substr(0, d.file.rfind('/'))))
      return document_error(c, d, "lies in a folder into which no tensor is saved");
    const auto [first, fresh] = written.try_emplace(d.file, &d);
    if (!fresh && first->second->use != d.use)
      return document_error(c, d, "is written by " + label(c.strategies, first->second->use) + " as well");
  }
  return ok();
}

/// The tensors that are there when the run begins from which the saved ones are made.
std::set<galley_tensor> needed_by_files(const Graph& graph) {
  const std::map<galley_tensor, galley_tensor> values = graph.saved_values();
  std::map<galley_tensor, galley_tensor> evaluated;
  for (const ExportedValue& e : graph.evaluated) evaluated[e.parameter] = e.value;
  std::set<galley_tensor> needed;
  std::vector<galley_tensor> pending;
  for (const galley_tensor t : graph.saved()) pending.push_back(values.contains(t) ? values.at(t) : t);
  while (!pending.empty()) {
    const galley_tensor t = pending.back();
    pending.pop_back();
    if (!t || !needed.insert(t).second) continue;
    const GraphTensor& x = graph.tensor(t);
    pending.push_back(x.storage.numbers_of);
    pending.push_back(x.slice.of);
    pending.insert(pending.end(), x.initial.inputs.begin(), x.initial.inputs.end());
    const Section section = x.producer ? graph.node(x.producer).section : Section::Forward;
    if (section != Section::Export && section != Section::Evaluate) continue;
    for (const galley_tensor in : graph.node(x.producer).inputs)
      pending.push_back(section == Section::Export && evaluated.contains(in) ? evaluated.at(in) : in);
  }
  return needed;
}

/// What no file is made from is not loaded.
void keep_exported(Compilation& c) {
  Graph& graph = c.graph;
  const std::set<galley_tensor> needed = needed_by_files(graph);
  // A file is read whole or not at all: a tensor in it that nobody reads is an error.
  std::set<std::string> sources;
  for (const galley_tensor t : needed) sources.insert(graph.tensor(t).source.path);
  sources.erase("");
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t) {
    GraphTensor& x = graph.tensor(t);
    if (lasts(x.kind) && !needed.contains(t) && !sources.contains(x.source.path)) x.unused = true;
  }
  std::erase_if(c.decisions.trainable, [&](galley_tensor t) { return graph.tensor(t).unused; });
}

}  // namespace

Status export_model(Compilation& c) {
  if (!c.saves()) return ok();
  TRY_STATUS(rewrite_segment(c, GALLEY_SEGMENT_EXPORT, Section::Export));
  if (c.options.merges) {
    TRY_STATUS(rewrite_segment(c, GALLEY_SEGMENT_MERGE, Section::Export));
    if (c.graph.exports.model != GALLEY_EXPORT_MODEL)
      return recipe_error("there is nothing to merge: no strategy of the recipe adds tensors of its own to the model",
                          "leave out --merge, and the model is saved whole");
  }
  TRY_STATUS(check_documents(c));
  if (c.options.purpose == Purpose::Export) keep_exported(c);
  return ok();
}

}  // namespace galley
