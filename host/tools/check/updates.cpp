#include "host/tools/check/updates.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include "galley/update.h"
#include "host/plugins/library.hpp"
#include "host/proofs/gradients.hpp"
#include "host/tools/check/rules.hpp"

namespace galley {
namespace {

/// One node, with numbers drawn for its inputs. `steps`: it is the update of a parameter that the strategy has won.
Status check_update(const CheckContext& context, Compilation& c, const GraphNode& node, bool steps, TestLog& log) {
  const OpLookup ops = [&](std::string_view name) { return context.plugins.op(name).table; };
  std::mt19937_64 random(context.seed);
  LoneNode lone;
  lone.op = node.op;
  lone.name = node.name;
  lone.attrs = node.attrs;
  std::optional<size_t> gradient, factor, applied;
  std::map<galley_tensor, uint32_t> scalars;
  for (const uint32_t which : {GALLEY_SCALAR_ATTEMPTED_STEP, GALLEY_SCALAR_APPLIED_STEP, GALLEY_SCALAR_APPLY, GALLEY_SCALAR_GRADIENT_FACTOR,
                               GALLEY_SCALAR_RANDOM, GALLEY_SCALAR_GRADIENT_NORM, GALLEY_SCALAR_FOUND_INF})
    scalars[TRY(c.draft.scalars.get(which))] = which;
  for (const galley_tensor t : node.inputs) {
    auto& in = lone.inputs.emplace_back();
    if (!t) continue;
    const GraphTensor& x = c.graph.tensor(t);
    in = Numbers::of(x.dtype, x.shape);
    std::vector<double> numbers(static_cast<size_t>(in->count()));
    const auto scalar = scalars.find(t);
    const uint32_t which = scalar == scalars.end() ? 0 : scalar->second;
    if (which == GALLEY_SCALAR_APPLY) applied = lone.inputs.size() - 1;
    if (which == GALLEY_SCALAR_GRADIENT_FACTOR) factor = lone.inputs.size() - 1;
    if (x.kind == GALLEY_KIND_GRADIENT) gradient = lone.inputs.size() - 1;
    for (double& number : numbers) {
      if (which == GALLEY_SCALAR_APPLY) number = 1;
      else if (which == GALLEY_SCALAR_APPLIED_STEP || which == GALLEY_SCALAR_ATTEMPTED_STEP) number = 3;
      else if (which == GALLEY_SCALAR_GRADIENT_FACTOR) number = .5;
      else if (which == GALLEY_SCALAR_FOUND_INF) number = 0;
      else if (!is_floating(x.dtype)) number = 0;
      else if (which || x.kind == GALLEY_KIND_SCALAR) number = .01;
      else number = std::uniform_real_distribution(x.flags & GALLEY_TENSOR_NON_NEGATIVE ? 0. : -1., 1.)(random);
    }
    if (!numbers.empty()) in->set(numbers);
  }
  if (!applied) return ok();
  const std::string where = "node '" + node.name + "' of op '" + node.op->name + "'";
  LoneNode skipped = lone;
  skipped.inputs[*applied]->set(std::vector<double>(static_cast<size_t>(skipped.inputs[*applied]->count()), 0));
  const Result<Made> nothing = made_by(skipped, ops);
  if (!nothing) return log.find(where, nothing.error().cause, rules::kReference), ok();
  for (size_t i = 0; i < lone.inputs.size(); ++i)
    if (lone.inputs[i] && updates_input(lone.op, i) &&
        (nothing->inputs[i]->floats != lone.inputs[i]->floats || nothing->inputs[i]->bytes != lone.inputs[i]->bytes))
      return log.find(where, "a skipped step changes input " + std::to_string(i), rules::kApply), ok();
  if (!steps || !gradient || !lone.inputs[*gradient]->floating()) return ok();
  // Gradients twice as large, by a factor of half, are the same gradients.
  LoneNode scaled = lone;
  for (double& g : scaled.inputs[*gradient]->floats) g *= 2;
  if (factor)
    for (double& f : scaled.inputs[*factor]->floats) f /= 2;
  const Result<Made> a = made_by(lone, ops), b = made_by(scaled, ops);
  if (!a || !b) return ok();
  for (size_t i = 0; i < lone.inputs.size(); ++i) {
    if (!lone.inputs[i] || !updates_input(lone.op, i) || !lone.inputs[i]->floating() || i == *gradient) continue;
    for (size_t k = 0; k < a->inputs[i]->floats.size(); ++k) {
      const double x = a->inputs[i]->floats[k], y = b->inputs[i]->floats[k];
      if (std::fabs(x - y) <= 1e-6 * (1 + std::fabs(x)) || (std::isnan(x) && std::isnan(y))) continue;
      return log.find(where,
                      "gradients twice as large by a factor of half make another update of input " + std::to_string(i) +
                          (factor ? "" : "; it does not read GALLEY_SCALAR_GRADIENT_FACTOR"),
                      rules::kFactor),
             ok();
    }
  }
  return ok();
}

}  // namespace

std::optional<int> use_in(const Compilation& c, const StrategySpec& strategy) {
  for (size_t i = 0; i < c.strategies.size(); ++i)
    if (c.strategies[i]->name() == strategy.name) return static_cast<int>(i);
  return std::nullopt;
}

Status check_updates(const CheckContext& context, const StrategySpec& strategy, Compilation& c, TestLog& log) {
  const auto use = use_in(c, strategy);
  std::set<std::string> seen;
  for (const galley_node n : c.graph.section(Section::Update)) {
    const GraphNode& node = c.graph.node(n);
    if (!use || node.use != *use) continue;
    bool lasts = false, steps = false;
    for (const galley_tensor t : written_by(node)) {
      const GraphTensor& x = c.graph.tensor(t);
      lasts = lasts || x.parameter_kind() || x.kind == GALLEY_KIND_STATE;
      steps = steps || (x.parameter_kind() && x.update_use == *use);
    }
    if (!lasts || node.stage == GALLEY_STAGE_CHECK) continue;  // what decides whether a step is skipped keeps count of it
    std::string key = node.op->name;
    for (const galley_tensor t : node.inputs) key += t ? "+" + std::to_string(c.graph.tensor(t).shape.size()) : "-";
    if (seen.insert(key + node.attrs.key()).second && node.op->reference) TRY_STATUS(check_update(context, c, node, steps, log));
  }
  if (!seen.empty()) log.held("updates: skipped steps and the gradient factor");
  return ok();
}

void check_requires(const CheckContext& context, const StrategySpec& strategy, const Compilation& c, TestLog& log) {
  const auto use = use_in(c, strategy);
  std::set<std::string> seen;
  for (size_t k = 0; k < section_names.size(); ++k)
    for (const galley_node n : c.graph.section(static_cast<Section>(k))) {
      const GraphNode& node = c.graph.node(n);
      const std::string owner = caller_of(node.op, "").plugin;
      if (!use || node.use != *use || owner == context.plugin.manifest.id || !seen.insert(owner).second) continue;
      const Plugin* other = context.plugins.find(owner);
      if (!other || other->manifest.strategies.empty()) continue;
      if (std::ranges::none_of(context.plugin.manifest.requirements, [&](const Requirement& r) { return r.id == owner; }))
        log.find("node '" + node.name + "'",
                 std::string("its op '") + node.op->name + "' is of plugin '" + owner + "', which the manifest does not require",
                 rules::kRequires);
    }
}

}  // namespace galley
