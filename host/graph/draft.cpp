#include "host/graph/draft.hpp"

#include <algorithm>
#include <cmath>

namespace galley {

Status Rates::scale(const Graph& graph, galley_tensor parameter, double factor) {
  if (!graph.has(parameter) || !graph.tensor(parameter).parameter_kind()) return plugin_error("scale_rate: no such parameter");
  const std::string& name = graph.tensor(parameter).name;
  if (!std::isfinite(factor) || factor < 0)
    return plugin_error("scale_rate: the rate of '" + name + "' cannot be multiplied by " + std::to_string(factor));
  if (asked.contains(parameter))
    return plugin_error("scale_rate: the update of '" + name + "' has been built", "call it before the optimizer asks for the rate");
  const auto [at, fresh] = factors.try_emplace(parameter, factor);
  if (!fresh) at->second *= factor;
  return ok();
}

Status Signals::report(const Graph& graph, galley_tensor t, const std::string& name) {
  // What a line of metrics has anyway.
  constexpr std::string_view taken[] = {"step", "loss", "grad_norm", "lr", "tokens", "seconds", "validation_loss", "skipped"};
  if (!graph.has(t)) return plugin_error("report: no tensor " + std::to_string(t));
  const GraphTensor& x = graph.tensor(t);
  if (x.count() != 1 || (x.dtype != GALLEY_F32 && x.dtype != GALLEY_F64))
    return plugin_error("report: '" + x.name + "' is not one F32 or F64 number");
  const auto legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/'; };
  if (name.empty() || !std::all_of(name.begin(), name.end(), legal))
    return plugin_error("report: '" + name + "' is no name of a metric: lower-case letters, digits, '_', '.' and '/'");
  if (std::find(std::begin(taken), std::end(taken), name) != std::end(taken))
    return plugin_error("report: every line of metrics has a '" + name + "' already");
  for (const Reported& other : reports)
    if (other.name == name) return plugin_error("report: two tensors are reported as '" + name + "'");
  // Each is read back after every step, and stands in every line of metrics.
  constexpr std::ptrdiff_t most = 256;
  if (std::ranges::count(reports, graph.author.use, &Reported::use) >= most)
    return plugin_error("report: '" + name + "' is more than the " + std::to_string(most) + " metrics that a strategy may report");
  reports.push_back({t, name, graph.author.use});
  return ok();
}

std::vector<galley_tensor> Exports::saved(const Graph& graph) const {
  std::vector<galley_tensor> out;
  for (galley_tensor id = 1; id <= graph.tensor_count(); ++id) {
    const GraphTensor& t = graph.tensor(id);
    if (!t.parameter_kind() || t.slice.of) continue;
    if (model != (t.saved.file.empty() ? GALLEY_EXPORT_OWN : GALLEY_EXPORT_MODEL)) out.push_back(id);
  }
  return out;
}

std::map<galley_tensor, galley_tensor> Draft::saved_values() const {
  std::map<galley_tensor, galley_tensor> out;
  for (const auto* list : {&evaluated, &exports.values})
    for (const ExportedValue& e : *list) out[e.parameter] = e.value;
  return out;
}

Result<galley_tensor> Draft::input(const std::string& name) {
  const galley_tensor found = graph.find(name);
  if (found && graph.tensor(found).kind == GALLEY_KIND_INPUT) return found;
  const auto own = std::ranges::find(run.own_inputs, name, &OwnInput::name);
  if (own == run.own_inputs.end() || found) {
    std::string there;
    for (const OwnInput& one : run.own_inputs) there += (there.empty() ? "" : ", ") + one.name;
    return recipe_error("the run's data has nothing that is called '" + name + "'",
                        there.empty() ? "the data is to be a plugin's, which brings it: data.NAME { … }" : "it has " + there);
  }
  GraphTensor t;
  t.name = name;
  t.kind = GALLEY_KIND_INPUT;
  t.dtype = own->dtype;
  t.fill = own_fill(static_cast<size_t>(own - run.own_inputs.begin()));
  t.shape = {graph.rows()};
  if (own->extent != 1) t.shape.push_back(own->extent > 0 ? own->extent : graph.length());
  return graph.make(std::move(t));
}

}  // namespace galley
