// The update graph: what is measured of the gradients, then what strategies append, stage by stage.
#include "galley/update.h"

#include <algorithm>
#include <set>

#include "host/passes/passes.hpp"

namespace galley {
namespace {

/// One sum of squares a gradient, in one tensor, and the norm of all.
Status measure(Compilation& c) {
  Graph& graph = c.graph;
  const Graph::As as(graph, {Section::Update, no_use, -1, 0, "update."});
  const std::vector<galley_tensor>& trainable = c.decisions.trainable;
  const int64_t sums = graph.reserve(static_cast<int64_t>(trainable.size()) * 8);
  std::vector<galley_tensor> norm_inputs = {TRY(graph.scalar(GALLEY_SCALAR_LOSS_SCALE))};
  for (size_t i = 0; i < trainable.size(); ++i) {
    const galley_tensor gradient = graph.tensor(trainable[i]).gradient;
    std::vector<galley_tensor> out = {
        TRY(graph.in_block("sum of squares of " + graph.tensor(gradient).name, GALLEY_F64, 1, sums + static_cast<int64_t>(i) * 8))};
    TRY(graph.append(c.roles.sum_squares, "", {gradient}, {}, &out, 0));
    c.squares.push_back(out[0]);
    norm_inputs.push_back(out[0]);
  }
  std::vector<galley_tensor> results = {TRY(graph.scalar(GALLEY_SCALAR_GRADIENT_NORM)), TRY(graph.scalar(GALLEY_SCALAR_FOUND_INF))};
  TRY(graph.append(c.roles.norm_finish, "", norm_inputs, {}, &results, 0));
  return ok();
}

Status build(Compilation& c, size_t use, galley_tensor parameter) {
  Graph& graph = c.graph;
  const LoadedStrategy& s = *c.strategies[use];
  const std::string prefix = "update." + (parameter ? graph.tensor(parameter).name + "." : std::string());
  const galley_tensor gradient = parameter ? graph.tensor(parameter).gradient : 0, first = graph.tensor_count() + 1;
  TRY_STATUS(call_strategy(graph, c.strategies, {Section::Update, static_cast<int>(use), -1, 0, prefix}, "build", [&](galley_error* error) {
    return s.update()->build(s.instance(), Graph::verbs(), graph.handle(), parameter, gradient, error);
  }));
  for (galley_tensor t = first; t <= graph.tensor_count(); ++t)
    if (graph.tensor(t).kind == GALLEY_KIND_STATE && !graph.tensor(t).parameter) graph.tensor(t).parameter = parameter;
  return ok();
}

/// Who has won a parameter's update has to write it: else nothing would be trained, and no step would say so.
Status check_updated(const Compilation& c) {
  const Graph& graph = c.graph;
  std::set<std::pair<galley_tensor, int>> written;
  for (const galley_node n : graph.section(Section::Update)) {
    const GraphNode& node = graph.node(n);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (const galley_operand_rule* rule = input_rule(node.op, i); rule && rule->flags & GALLEY_OPERAND_INOUT)
        written.emplace(node.inputs[i], node.use);
    for (const galley_tensor t : node.outputs) written.emplace(t, node.use);
  }
  for (const galley_tensor t : c.decisions.trainable) {
    const int use = graph.tensor(t).update_use;
    if (use == no_use || written.contains({t, use})) continue;
    const std::string& name = graph.tensor(t).name;
    return plugin_error(label(c.strategies, use) + ", plugin '" + c.strategies[static_cast<size_t>(use)]->plugin().manifest.id +
                            "': claims the update of '" + name + "', but none of the nodes that it builds writes '" + name + "'",
                        "its 'build' has to append a node that updates the parameter in place, or it abstains from claiming");
  }
  return ok();
}

/// Of an update that is not run, the states that stand for parameters are left; which of them are exported is not known yet.
void drop_training(Compilation& c) {
  Graph& graph = c.graph;
  std::set<galley_tensor> kept;
  for (const ExportedValue& e : graph.evaluated) kept.insert(e.value);
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t) {
    GraphTensor& x = graph.tensor(t);
    x.gradient = 0;
    const bool stands = c.options.purpose == Purpose::Export || kept.contains(t);
    x.unused = x.unused || x.kind == GALLEY_KIND_GRADIENT || (x.kind == GALLEY_KIND_STATE && !stands);
  }
  graph.section(Section::Backward).clear();
  graph.section(Section::Update).clear();
}

}  // namespace

Status update(Compilation& c) {
  if (!c.trains() && !c.averages()) return ok();
  if (c.trains()) TRY_STATUS(measure(c));
  for (const uint32_t stage : {GALLEY_STAGE_CHECK, GALLEY_STAGE_CLIP, GALLEY_STAGE_GRADIENT, GALLEY_STAGE_STEP, GALLEY_STAGE_AFTER}) {
    if (!c.trains() && stage != GALLEY_STAGE_AFTER) continue;
    const bool per_parameter = stage >= GALLEY_STAGE_GRADIENT;
    for (const galley_tensor t : per_parameter ? c.decisions.trainable : std::vector<galley_tensor>{0}) {
      for (size_t i = 0; i < c.strategies.size(); ++i) {
        const galley_update* interface = c.strategies[i]->update();
        if (!interface || interface->stage != stage) continue;
        if (stage == GALLEY_STAGE_STEP && c.graph.tensor(t).update_use != static_cast<int>(i)) continue;
        TRY_STATUS(build(c, i, t));
      }
    }
  }
  if (c.trains()) return check_updated(c);
  drop_training(c);
  return ok();
}

}  // namespace galley
