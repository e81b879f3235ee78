#include "host/passes/items.hpp"

#include <algorithm>

#include "host/plugins/abi.hpp"
#include "host/plugins/call.hpp"
#include "host/plugins/library.hpp"

namespace galley {

Item whole(const GraphNode& node) {
  Item item;
  item.node = &node;
  for (const galley_tensor t : node.inputs) item.inputs.push_back({t, 0, -1});
  for (const galley_tensor t : node.outputs) item.outputs.push_back({t, 0, -1});
  item.accumulate = node.accumulate;
  return item;
}

bool runs_once(const Tensors& tensors, const Item& item) {
  if (item.node->op->flags & GALLEY_OP_EXCHANGE) return true;
  const auto changes = [&](const Ref& r) {
    if (!r.tensor) return false;
    const galley_tensor of = tensors[r.tensor].storage.numbers_of;
    return tensors[of ? of : r.tensor].written_forward();
  };
  return std::ranges::any_of(item.inputs, changes) || std::ranges::any_of(item.outputs, changes);
}

Result<galley_cost> item_cost(const Graph& graph, const Tensors& tensors, const Item& item) {
  auto cost = new_struct<galley_cost>();
  const GraphNode& node = *item.node;
  double scale = 1;
  for (const Ref& r : item.inputs) {
    if (!r.tensor || r.rows < 0) continue;  // costs of row-wise nodes are proportional to rows
    const int64_t all = graph.tensor(graph.marks.hidden).count() / graph.tensor(graph.marks.hidden).shape.back();
    if (tensors[r.tensor].kind != GALLEY_KIND_INPUT) scale = static_cast<double>(r.rows) / static_cast<double>(all);
  }
  // Where only some operands are slices, the others already have the chunk's shape; describe the node by its unsplit operands.
  std::vector<const GraphTensor*> inputs, outputs;
  for (size_t i = 0; i < item.inputs.size(); ++i) {
    const galley_tensor t = scale != 1 ? node.inputs[i] : item.inputs[i].tensor;
    inputs.push_back(t ? &tensors[t] : nullptr);
  }
  for (size_t i = 0; i < item.outputs.size(); ++i) {
    const galley_tensor t = scale != 1 ? node.outputs[i] : item.outputs[i].tensor;
    outputs.push_back(t ? &tensors[t] : nullptr);
  }
  if (node.op->cost) {
    const NodeDescription description(node.op, node.name, inputs, node.attrs, outputs, {}, graph.length());
    const Caller caller = {owner_of(node.op)};
    TRY_STATUS(call_plugin(caller, "cost of '" + node.name + "'",
                           [&](galley_error* error) { return node.op->cost(node.op->self, description.view(), &cost, error); }));
  }
  if (cost.bytes == 0)
    for (const auto* list : {&inputs, &outputs})
      for (const GraphTensor* t : *list)
        if (t) cost.bytes += static_cast<double>(t->bytes());
  cost.flops *= scale;
  cost.bytes *= scale;
  return cost;
}

}  // namespace galley
