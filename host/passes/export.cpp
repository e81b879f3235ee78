// What a program that only exports needs: the tensors that files are made from, and what these are made from.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/passes/passes.hpp"

namespace galley {
namespace {

/// The tensors that are there when the run begins from which the saved ones are made.
std::set<galley_tensor> needed_by_files(const Graph& graph) {
  std::map<galley_tensor, galley_tensor> values;
  for (const ExportedValue& e : graph.exported) values[e.parameter] = e.value;
  std::set<galley_tensor> needed;
  std::vector<galley_tensor> pending;
  for (const galley_tensor t : graph.saved()) pending.push_back(values.contains(t) ? values.at(t) : t);
  while (!pending.empty()) {
    const galley_tensor t = pending.back();
    pending.pop_back();
    if (!t || !needed.insert(t).second) continue;
    const GraphTensor& x = graph.tensor(t);
    pending.push_back(x.numbers_of);
    pending.push_back(x.slice_of);
    pending.insert(pending.end(), x.initializer_inputs.begin(), x.initializer_inputs.end());
    if (!x.producer || graph.node(x.producer).section != Section::Export) continue;
    const GraphNode& node = graph.node(x.producer);
    pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
  }
  return needed;
}

}  // namespace

void keep_exported(Compilation& c) {
  Graph& graph = c.graph;
  const std::set<galley_tensor> needed = needed_by_files(graph);
  // A file is read whole or not at all: a tensor in it that nobody reads is an error.
  std::set<std::string> sources;
  for (const galley_tensor t : needed) sources.insert(graph.tensor(t).source);
  sources.erase("");
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t) {
    GraphTensor& x = graph.tensor(t);
    const bool lasts = x.kind == GALLEY_KIND_PARAMETER || x.kind == GALLEY_KIND_STATE || x.kind == GALLEY_KIND_CONSTANT;
    if (lasts && !needed.contains(t) && !sources.contains(x.source)) x.unused = true;
  }
  std::erase_if(c.decisions.trainable, [&](galley_tensor t) { return graph.tensor(t).unused; });
}

}  // namespace galley
