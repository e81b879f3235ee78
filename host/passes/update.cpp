// The update graph: what is measured of the gradients, then what strategies append, stage by stage. Then the same strategies say what is
// evaluated in the place of parameters.
#include "galley/update.h"

#include <algorithm>
#include <set>

#include "host/passes/passes.hpp"
#include "host/passes/verbs/handle.hpp"
#include "host/plugins/abi.hpp"

namespace galley {
namespace {

/// Adds the nodes that compute one sum of squares a gradient, in one tensor, and the norm of all.
Status measure(Compilation& c) {
  Graph& graph = c.graph;
  const Graph::As as(graph, {Section::Update, no_use, -1, 0, "update."});
  const std::vector<galley_tensor>& trainable = c.decisions.trainable;
  const int64_t sums = c.draft.scalars.reserve(static_cast<int64_t>(trainable.size()) * 8);
  std::vector<galley_tensor> norm_inputs = {TRY(c.draft.scalars.get(GALLEY_SCALAR_LOSS_SCALE))};
  for (size_t i = 0; i < trainable.size(); ++i) {
    const galley_tensor gradient = graph.tensor(trainable[i]).gradient;
    std::vector<galley_tensor> out = {TRY(
        c.draft.scalars.in_block("sum of squares of " + graph.tensor(gradient).name, GALLEY_F64, 1, sums + static_cast<int64_t>(i) * 8))};
    TRY(graph.append(c.roles.sum_squares, "", {gradient}, {}, &out));
    c.squares.push_back(out[0]);
    norm_inputs.push_back(out[0]);
  }
  std::vector<galley_tensor> results = {TRY(c.draft.scalars.get(GALLEY_SCALAR_GRADIENT_NORM)),
                                        TRY(c.draft.scalars.get(GALLEY_SCALAR_FOUND_INF))};
  TRY(graph.append(c.roles.norm_finish, "", norm_inputs, {}, &results));
  return ok();
}

constexpr uint32_t stages[] = {GALLEY_STAGE_CHECK, GALLEY_STAGE_CLIP, GALLEY_STAGE_GRADIENT, GALLEY_STAGE_STEP, GALLEY_STAGE_AFTER};

/// Calls each strategy once for each stage that it builds in, stage by stage.
Status build(Compilation& c, uint32_t purpose) {
  Graph& graph = c.graph;
  const bool trains = purpose == GALLEY_PURPOSE_TRAIN;
  const Section section = trains ? Section::Update : Section::Evaluate;
  const std::vector<int> uses = in_order(
      c.strategies, [](const LoadedStrategy& s) { return s.update() && s.update()->order ? s.update()->order : GALLEY_ORDER_USUAL; });
  for (const uint32_t stage : stages)
    for (const int use : uses) {
      const LoadedStrategy& s = *c.strategies[static_cast<size_t>(use)];
      if (!s.update() || !(s.update()->stages & stage)) continue;
      std::vector<galley_tensor> parameters = c.decisions.trainable, gradients;
      if (stage == GALLEY_STAGE_STEP) {
        std::erase_if(parameters, [&](galley_tensor t) { return graph.tensor(t).update_use != use; });
        if (parameters.empty()) continue;
      }
      for (const galley_tensor t : parameters) gradients.push_back(trains ? graph.tensor(t).gradient : 0);
      auto call = new_struct<galley_update_call>();
      call.stage = stage;
      call.purpose = purpose;
      call.parameters = parameters.data();
      call.gradients = gradients.data();
      call.n = parameters.size();
      TRY_STATUS(call_strategy(c, {section, use, -1, 0, trains ? "update." : "evaluate.", stage}, "build",
                               [&](galley_graph* handle, galley_error* error) {
                                 return s.update()->build(s.instance(), GraphHandle::update_verbs(), handle, &call, error);
                               }));
    }
  return ok();
}

/// Who has won a parameter's update has to write it: else nothing would be trained, and no step would say so.
Status check_updated(const Compilation& c) {
  const Graph& graph = c.graph;
  std::set<std::pair<galley_tensor, int>> written;
  for (const galley_node n : graph.section(Section::Update)) {
    const GraphNode& node = graph.node(n);
    for (const galley_tensor t : written_by(node)) written.emplace(t, node.use);
  }
  for (const galley_tensor t : c.decisions.trainable) {
    const int use = graph.tensor(t).update_use;
    if (use == no_use || written.contains({t, use})) continue;
    const std::string& name = graph.tensor(t).name;
    return strategy_error(c.strategies, use,
                          "claims the update of '" + name + "', but none of the nodes that it builds writes '" + name + "'",
                          "its 'build' has to append a node that updates the parameter in place, or it abstains from claiming");
  }
  return ok();
}

/// Leaves of what was made for evaluation the nodes that a value is made from, and in a program without an update the states that are read.
/// Which states are saved is not known yet.
Status keep_evaluated(Compilation& c, size_t tensors_before) {
  Graph& graph = c.graph;
  std::set<galley_tensor> needed;
  for (const ExportedValue& e : c.draft.evaluated) needed.insert(e.value);
  std::vector<galley_node>& nodes = graph.section(Section::Evaluate);
  std::set<galley_node> kept;
  for (auto n = nodes.rbegin(); n != nodes.rend(); ++n) {
    const GraphNode& node = graph.node(*n);
    if (std::none_of(node.outputs.begin(), node.outputs.end(), [&](galley_tensor t) { return needed.contains(t); })) continue;
    kept.insert(*n);
    needed.insert(node.inputs.begin(), node.inputs.end());
  }
  std::erase_if(nodes, [&](galley_node n) { return !kept.contains(n); });
  for (galley_tensor t = tensors_before + 1; t <= graph.tensor_count(); ++t) {
    GraphTensor& x = graph.tensor(t);
    if (x.kind != GALLEY_KIND_STATE) continue;
    if (c.trains())
      return strategy_error(c.strategies, x.use, "makes the state '" + x.name + "' for evaluation, but not for training",
                            "its 'build' has to make the same states for GALLEY_PURPOSE_TRAIN and for GALLEY_PURPOSE_EVAL");
    x.unused = x.unused || (c.options.purpose != Purpose::Export && !needed.contains(t));
  }
  return ok();
}

}  // namespace

Status update(Compilation& c) {
  if (c.trains()) {
    TRY_STATUS(measure(c));
    TRY_STATUS(build(c, GALLEY_PURPOSE_TRAIN));
    TRY_STATUS(check_updated(c));
  }
  if (!c.asks_for_evaluation()) return ok();
  const size_t tensors_before = c.graph.tensor_count();
  TRY_STATUS(build(c, GALLEY_PURPOSE_EVAL));
  return keep_evaluated(c, tensors_before);
}

}  // namespace galley
