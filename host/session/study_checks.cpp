#include "host/session/study_checks.hpp"

#include <algorithm>
#include <set>

#include "host/base/listed.hpp"
#include "host/passes/unused_kernels.hpp"
#include "host/session/unfit.hpp"

namespace galley {
namespace {

bool same(const Value& a, const Value& b) { return static_cast<const Value::variant&>(a) == static_cast<const Value::variant&>(b); }

/// The strategies of all plugins that decide a facet, for a hint.
std::string deciders(const Plugins& plugins, const FacetRule& need) {
  std::vector<std::string> names;
  for (const auto& plugin : plugins.all())
    for (const StrategySpec& spec : plugin->manifest.strategies)
      if (std::ranges::any_of(spec.provides, [&](const FacetRule& has) {
            return has.facet == need.facet && (need.value.is_nil() || same(has.value, need.value));
          }))
        names.push_back(spec.name);
  return names.empty() ? "no plugin that is there has one" : "add one of these: " + listed(names, 5, 200);
}

/// Whether a strategy updates parameters, though its manifest does not say what it decides: an optimizer.
bool updates(const LoadedStrategy& s) {
  const auto says = [](const FacetRule& has) { return has.facet == "update"; };
  return s.update() && s.update()->stages & GALLEY_STAGE_STEP && s.claim() && std::ranges::none_of(s.spec().provides, says);
}

}  // namespace

Status check_needs(const Plugins& plugins, const std::vector<std::unique_ptr<const LoadedStrategy>>& loaded) {
  for (const auto& s : loaded)
    for (const FacetRule& need : s->spec().needs) {
      if (!need.holds(s->options().values())) continue;
      const std::string who = s->place().text() + ": " + s->name() + " needs ";
      const std::string wanted = need.value.is_nil() ? "" : " = " + value_text(need.value);
      bool met = false;
      for (const auto& other : loaded) {
        met = met || (other != s && need.facet == "update" && need.value.is_nil() && updates(*other));
        for (const FacetRule& has : other->spec().provides) {
          if (other == s || has.facet != need.facet || !has.holds(other->options().values())) continue;
          met = need.value.is_nil() || same(has.value, need.value);
          if (!met)
            return recipe_error(
                who + need.facet + wanted + ", but " + other->name() + " (" + other->place().text() + ") makes it " + value_text(has.value),
                "take one of the two out of the recipe");
        }
      }
      if (!met && need.facet == "update" && wanted.empty())
        return recipe_error(who + "an optimizer, and the recipe has none", deciders(plugins, need));
      if (!met)
        return recipe_error(who + "a strategy that decides '" + need.facet + "'" + wanted + ", and the recipe has none",
                            deciders(plugins, need));
    }
  return ok();
}

Status check_stored(const Study& s) {
  const auto knows = [](const StrategySpec& spec, const std::string& key) {
    return std::ranges::find(spec.config, key) != spec.config.end();
  };
  for (const auto& [key, value] : s.model.config) {
    if (value.is_nil() || std::ranges::any_of(s.loaded, [&](const auto& used) { return knows(used->spec(), key); })) continue;
    std::string list;
    for (const auto& plugin : s.plugins->all())
      for (const StrategySpec& spec : plugin->manifest.strategies)
        if (knows(spec, key)) list += (list.empty() ? "use \"" : "or use \"") + spec.name + "\" {} ";
    if (!list.empty())
      return recipe_error(s.model.origin + ": key '" + key +
                              "' says that weights are stored in a way that only a strategy reads, and the "
                              "recipe uses none that does",
                          list + "reads it");
  }
  return ok();
}

Status check_fit(const Study& s, const StudyOptions& options) {
  const bool asked = options.memory_limit > 0;
  const int64_t planned = s.peak_memory(), limit = asked ? options.memory_limit : s.target.memory_limit;
  if (limit > 0 && planned > limit)
    return does_not_fit(s, s.plan.classes[0], planned, "", asked ? "--memory" : "the target's memory_limit", limit);
  if (limit == 0 && options.runs && s.host_memory() > machine_memory())
    return does_not_fit(s, s.plan.classes[s.target.host_memory()], s.host_memory(), "", "this machine", machine_memory());
  if (!options.runs && options.target.empty()) return ok();
  for (size_t i = 0; i < s.plan.classes.size(); ++i) {
    const MemoryClass& memory = s.target.memories[i];
    const ClassPlan& plan = s.plan.classes[i];
    if (memory.capacity > 0 && plan.planned > memory.capacity)
      return does_not_fit(s, plan, plan.planned, " of '" + memory.name + "'", "which", memory.capacity);
  }
  return ok();
}

void warn_of_unused_kernels(const Study& s, const StudyOptions& options) {
  if (!options.warn) return;
  std::vector<std::string> used;
  for (const auto& strategy : s.loaded)
    if (!s.built_in(strategy->plugin())) used.push_back(strategy->plugin().manifest.id);
  for (const std::string& line : unused_kernels(*s.plugins, s.target, s.program, s.recipe.kernels, used))
    options.warn(s.recipe.name + ": " + line);
}

Status check_foreign(const Study& s, const Checks& checks) {
  std::set<std::string> foreign;
  const auto touched = [&](const Plugin* plugin) {
    if (plugin && !s.built_in(*plugin)) foreign.insert(plugin->manifest.id);
  };
  touched(s.device.plugin);
  for (const auto& strategy : s.loaded) touched(&strategy->plugin());
  for (const Program::Chosen& k : s.program.kernels) {
    touched(s.plugins->find(k.plugin));
    touched(s.plugins->op(k.op).plugin);
  }
  if (foreign.empty()) return ok();
  Status proved = checks.plan(s.program, s.plan, s.target);
  if (proved) return ok();
  std::string list;
  for (const std::string& id : foreign) list += (list.empty() ? "'" : ", '") + id + "'";
  return plugin_error("the program does not pass its proof with plugin " + list + ": " + proved.error().cause,
                      "without the plugin such programs pass: report it to the plugin's author, with the recipe");
}

}  // namespace galley
