#include "host/passes/verbs/handle.hpp"

#include <cstdio>

#include "host/passes/compilation.hpp"

namespace galley {

Result<galley_tensor> GraphHandle::option(const std::string& name, double factor) {
  if (!strategy) return plugin_error("option '" + name + "' asked for outside of a strategy's call");
  strategy->options().note_asked(name);
  const int use = draft.graph.author.use;
  char times[40] = "";
  if (factor != 1) std::snprintf(times, sizeof times, " x %a", factor);  // one slot for all parameters of one factor
  const std::string full = "option." + std::to_string(use) + "." + name + times;
  if (const galley_tensor found = draft.graph.find(full)) return found;
  ScalarSlot slot;
  slot.option = strategy->name() + "." + name;
  slot.schedule = TRY(option_schedule(*strategy, name));
  slot.dtype = GALLEY_F32;
  slot.bytes = 4;
  slot.use = static_cast<size_t>(use);
  slot.factor = factor;
  return draft.scalars.add(std::move(slot), full);
}

Result<galley_tensor> GraphHandle::rate(const std::string& name, galley_tensor parameter) {
  Graph& graph = draft.graph;
  if (!graph.has(parameter) || !graph.tensor(parameter).parameter_kind()) return plugin_error("rate: no such parameter");
  const auto as_rate = [&](galley_tensor option) {
    for (ScalarSlot& s : draft.scalars.slots) s.rate = s.rate || s.tensor_name == graph.tensor(option).name;
    return option;
  };
  // The plain rate has a slot in any case: it is the run's learning rate in the metrics.
  const galley_tensor plain = as_rate(TRY(option(name)));
  draft.rates.asked.insert(parameter);
  const auto scaled = draft.rates.factors.find(parameter);
  return scaled == draft.rates.factors.end() || scaled->second == 1 ? plain : as_rate(TRY(option(name, scaled->second)));
}

Status call_strategy(Compilation& c, Author author, std::string_view what,
                     const std::function<galley_status(galley_graph*, galley_error*)>& call) {
  GraphHandle handle = {c.draft, &c.plugins, c.strategies[static_cast<size_t>(author.use)].get()};
  const Caller caller = handle.strategy->caller();
  // Far more than any strategy needs: some update a parameter with a hundred nodes.
  author.room = 16 * (c.graph.tensor_count() + c.graph.node_count()) + (size_t{1} << 16);
  const Graph::As as(c.graph, std::move(author));
  Status status = call_plugin(caller, what, [&](galley_error* error) { return call(handle.get(), error); });
  // A plugin that hands on the refusal of a verb: what it said to the verb makes no sense, whatever the recipe says.
  if (!status.ok() && status.error().exit == Exit::Recipe && handle.refused && handle.refused->exit == Exit::Plugin)
    return plugin_fault(caller, what, *handle.refused);
  return status;
}

}  // namespace galley
