// What strategies ask of the step's block of scalars: options, learning rates of single parameters, and metrics.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "host/graph/graph.hpp"

namespace galley {

Result<galley_tensor> Graph::option(const std::string& name, double factor) {
  if (author.use == no_use || !option_slot) return plugin_error("option '" + name + "' asked for outside of a strategy's call");
  char times[40] = "";
  if (factor != 1) std::snprintf(times, sizeof times, " x %a", factor);  // one slot for all parameters of one factor
  const std::string full = "option." + std::to_string(author.use) + "." + name + times;
  if (const galley_tensor found = find(full)) return found;
  ScalarSlot s = TRY(option_slot(author.use, name));
  s.dtype = GALLEY_F32;
  s.bytes = 4;
  s.use = static_cast<size_t>(author.use);
  s.factor = factor;
  return slot(std::move(s), full);
}

Result<galley_tensor> Graph::rate(const std::string& name, galley_tensor parameter) {
  if (!has(parameter) || !tensor(parameter).parameter_kind()) return plugin_error("rate: no such parameter");
  // The plain rate has a slot in any case: it is the run's learning rate in the metrics.
  const galley_tensor plain = as_rate(TRY(option(name)));
  rates_.asked.insert(parameter);
  const auto scaled = rates_.factors.find(parameter);
  return scaled == rates_.factors.end() || scaled->second == 1 ? plain : as_rate(TRY(option(name, scaled->second)));
}

galley_tensor Graph::as_rate(galley_tensor option) {
  for (ScalarSlot& s : scalars.slots)
    if (s.tensor_name == tensor(option).name) s.rate = true;
  return option;
}

Status Graph::scale_rate(galley_tensor parameter, double factor) {
  if (!has(parameter) || !tensor(parameter).parameter_kind()) return plugin_error("scale_rate: no such parameter");
  const std::string& name = tensor(parameter).name;
  if (!std::isfinite(factor) || factor < 0)
    return plugin_error("scale_rate: the rate of '" + name + "' cannot be multiplied by " + std::to_string(factor));
  if (rates_.asked.contains(parameter))
    return plugin_error("scale_rate: the update of '" + name + "' has been built", "call it before the optimizer asks for the rate");
  const auto [at, fresh] = rates_.factors.try_emplace(parameter, factor);
  if (!fresh) at->second *= factor;
  return ok();
}

Status Graph::report(galley_tensor t, const std::string& name) {
  // What a line of metrics has anyway.
  constexpr std::string_view taken[] = {"step", "loss", "grad_norm", "lr", "tokens", "seconds", "validation_loss", "skipped"};
  if (!has(t)) return plugin_error("report: no tensor " + std::to_string(t));
  const GraphTensor& x = tensor(t);
  if (x.count() != 1 || (x.dtype != GALLEY_F32 && x.dtype != GALLEY_F64))
    return plugin_error("report: '" + x.name + "' is not one F32 or F64 number");
  const auto legal = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '/'; };
  if (name.empty() || !std::all_of(name.begin(), name.end(), legal))
    return plugin_error("report: '" + name + "' is no name of a metric: lower-case letters, digits, '_', '.' and '/'");
  if (std::find(std::begin(taken), std::end(taken), name) != std::end(taken))
    return plugin_error("report: every line of metrics has a '" + name + "' already");
  for (const Reported& other : signals.reports)
    if (other.name == name) return plugin_error("report: two tensors are reported as '" + name + "'");
  // Each is read back after every step, and stands in every line of metrics.
  constexpr std::ptrdiff_t most = 256;
  if (std::ranges::count(signals.reports, author.use, &Reported::use) >= most)
    return plugin_error("report: '" + name + "' is more than the " + std::to_string(most) + " metrics that a strategy may report");
  signals.reports.push_back({t, name, author.use});
  return ok();
}

galley_node Graph::next_node(Section s, galley_node n) const {
  const std::vector<galley_node>& nodes = section(s);
  if (!n) return nodes.empty() ? 0 : nodes.front();
  // Callers walk in order: the place of the last answer is nearly always the one that is asked about.
  if (next_ >= nodes.size() || nodes[next_] != n) {
    const auto found = std::find(nodes.begin(), nodes.end(), n);
    if (found == nodes.end()) return 0;
    next_ = static_cast<size_t>(found - nodes.begin());
  }
  ++next_;
  return next_ < nodes.size() ? nodes[next_] : 0;
}

int64_t Graph::block_of(galley_tensor t) {
  const GraphTensor& x = tensor(t);
  if (x.producer) return node(x.producer).block;
  const galley_tensor owner = x.parameter ? x.parameter : t;
  // A tensor's block is its first reader's; all are found at once.
  const std::vector<galley_node>& nodes = section(Section::Forward);
  if (blocks_.nodes != nodes.size()) {
    blocks_.of.clear();
    for (const galley_node n : nodes)
      for (const galley_tensor in : node(n).inputs)
        if (in) blocks_.of.try_emplace(in, node(n).block);
    blocks_.nodes = nodes.size();
  }
  const auto found = blocks_.of.find(owner);
  return found == blocks_.of.end() ? -1 : found->second;
}

}  // namespace galley
