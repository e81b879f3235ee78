#include "host/passes/constants.hpp"

#include "galley/op.h"

namespace galley {

std::vector<bool> changing_tensors(const Graph& graph) {
  std::vector<bool> out(graph.tensor_count() + 1, false);
  for (galley_tensor id = 1; id <= graph.tensor_count(); ++id) {
    const GraphTensor& t = graph.tensor(id);
    out[id] = t.kind == GALLEY_KIND_STATE || (t.parameter_kind() && t.changes());
    if (t.kind != GALLEY_KIND_CONSTANT) continue;
    for (const galley_tensor in : t.initial.inputs) {
      const galley_tensor numbers = graph.tensor(in).storage.numbers_of;
      out[id] = out[id] || out[numbers ? numbers : in];
    }
  }
  return out;
}

galley_tensor copied_by(const Compilation& c, const GraphTensor& constant) {
  const bool copy = constant.kind == GALLEY_KIND_CONSTANT && constant.initial.op == c.roles.copy->name;
  return copy && constant.initial.inputs.size() == 1 ? constant.initial.inputs[0] : 0;
}

}  // namespace galley
