// To sample, only one row of the last hidden state goes through the head: the one at a position that the host says.
#include "host/passes/passes.hpp"

namespace galley {

Status sample(Compilation& c) {
  if (c.options.purpose != Purpose::Sample) return ok();
  Graph& graph = c.graph;
  if (c.caches()) return ok();  // each of its parts has taken its own
  if (!graph.marks.hidden || !graph.marks.logits) return recipe_error("this model marks no head to sample from");
  const Graph::As as(graph, {Section::Sample});
  std::vector<galley_tensor> row = {0};
  TRY(graph.append(c.roles.take_rows, "sample.hidden", {graph.marks.hidden, graph.marks.position}, {}, &row));
  return ok();
}

}  // namespace galley
