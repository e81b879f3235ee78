#include "host/passes/gradient_rule.hpp"

#include "galley/op.h"
#include "host/passes/roles.hpp"
#include "host/passes/verbs/handle.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/call.hpp"

namespace galley {
namespace {

/// Another shape would be copied over its neighbours, and what no node has written holds whatever lay there.
Status check_handed_out(const Graph& graph, const GraphNode& node, size_t i, galley_tensor got, galley_tensor offered, bool adds,
                        size_t before) {
  const GraphTensor& x = graph.tensor(node.inputs[i]);
  const std::string who = "plugin '" + owner_of(node.op) + "': the gradient rule of op '" + node.op->name + "', node '" + node.name + "', ";
  const std::string what = "input " + std::to_string(i) + " ('" + x.name + "')";
  if (!got) return plugin_error(who + "hands out nothing for " + what);
  if (!graph.has(got)) return plugin_error(who + "hands out something that is no tensor for " + what);
  const GraphTensor& g = graph.tensor(got);
  if (g.shape != x.shape || g.dtype != x.dtype)
    return plugin_error(who + "hands out " + type_text(g) + " for " + what + ", which is " + type_text(x));
  if (got != offered) return ok();
  for (galley_node n = before + 1; n <= graph.node_count(); ++n) {
    const GraphNode& made = graph.node(n);
    for (size_t k = 0; k < made.outputs.size(); ++k)
      if (made.outputs[k] == got && chosen(made.accumulate, k) == adds) return ok();
  }
  return plugin_error(who + "hands out '" + g.name + "' for " + what + ", but none of its nodes " + (adds ? "adds to" : "writes") + " it");
}

}  // namespace

Status append_gradient(Draft& draft, GradientCall& c) {
  Graph& graph = draft.graph;
  GraphHandle handle = {draft};
  const GraphNode& node = graph.node(c.node);
  const std::vector<galley_tensor> offered = c.d_inputs;
  const size_t before = graph.node_count();
  const Status built = call_plugin(
      Caller{owner_of(node.op)}, "gradient of op '" + std::string(node.op->name) + "', node '" + node.name + "'", [&](galley_error* error) {
        auto call = new_struct<galley_gradient_call>();
        call.node = c.node;
        call.d_outputs = c.d_outputs.data();
        call.need = c.need.data();
        call.d_inputs = c.d_inputs.data();
        call.accumulate = c.accumulate.data();
        call.n_inputs = static_cast<uint32_t>(node.inputs.size());
        call.n_outputs = static_cast<uint32_t>(node.outputs.size());
        return node.op->gradient(node.op->self, GraphHandle::verbs(), handle.get(), &call, error);
      });
  if (!built) return plugin_error(built.error().cause, built.error().hint);
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (c.need[i]) TRY_STATUS(check_handed_out(graph, node, i, c.d_inputs[i], offered[i], c.accumulate[i] != 0, before));
  return ok();
}

}  // namespace galley
