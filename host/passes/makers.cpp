#include "host/passes/makers.hpp"

#include <algorithm>
#include <utility>

namespace galley {

std::vector<galley_node> head_nodes(const Graph& graph) {
  std::vector<galley_node> out;
  if (!graph.marks.hidden) return out;
  std::set<galley_tensor> reached = {graph.marks.hidden};
  for (const galley_node n : graph.section(Section::Forward)) {
    const GraphNode& node = graph.node(n);
    if (std::ranges::none_of(node.inputs, [&](galley_tensor t) { return reached.contains(t); })) continue;
    out.push_back(n);
    reached.insert(node.outputs.begin(), node.outputs.end());
  }
  return out;
}

Makers::Makers(const Draft& draft, const std::vector<Section>& sections) : graph_(draft.graph) {
  for (const ExportedValue& e : draft.evaluated) evaluated_[e.parameter] = e.value;
  for (const Section s : sections)
    for (const galley_node n : graph_.section(s)) {
      for (const galley_tensor t : graph_.node(n).outputs)
        if (t) writers_[t].push_back(order_.size());
      order_.push_back(n);
    }
}

galley_tensor Makers::read(const GraphNode& node, galley_tensor t) const {
  const auto value = node.section == Section::Export ? evaluated_.find(t) : evaluated_.end();
  return value == evaluated_.end() ? t : value->second;
}

std::vector<galley_node> Makers::of(galley_tensor t, const std::set<galley_node>& done, std::vector<galley_tensor>* beginnings) const {
  Walk walk = {done, beginnings};
  visit(t, order_.size(), walk);
  return std::move(walk.nodes);
}

/// `before`: only what stands in front of this place has made what is read there.
void Makers::visit(galley_tensor t, size_t before, Walk& walk) const {
  const auto writers = writers_.find(t);
  if (writers == writers_.end()) {
    if (walk.beginnings) walk.beginnings->push_back(t);
    return;
  }
  for (const size_t at : writers->second) {
    const galley_node n = order_[at];
    if (at >= before || walk.done.contains(n) || !walk.met.insert(n).second) continue;
    for (const galley_tensor in : graph_.node(n).inputs)
      if (in) visit(read(graph_.node(n), in), at, walk);
    walk.nodes.push_back(n);
  }
}

}  // namespace galley
