#include "host/passes/matches.hpp"

#include <algorithm>
#include <set>

#include "galley/cpp/glob.hpp"
#include "galley/update.h"

namespace galley {
namespace {

using Names = std::vector<std::string>;

bool any(const Names& names, const std::string& pattern) {
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return sdk::glob_match(pattern, name); });
}

std::string noun_of(const std::string& subject) { return subject.substr(0, subject.size() - 1); }

/// What an option is held against: its names, and more that there are though they do not count.
struct Subject {
  const char* matches;
  Names names, others;
};

Status check_option(const LoadedStrategy& s, const std::string& called, const OptionSpec& spec, const Value& value,
                    const Subject& subject) {
  const auto* list = value.as<List>();
  for (size_t i = 0; list && i < list->size(); ++i) {
    const auto* pattern = (*list)[i].as<std::string>();
    if (!pattern || any(subject.names, *pattern)) continue;
    const std::string place = s.place().text() + ": " + s.name() + ": " + called + ": ";
    if (any(subject.others, *pattern))
      return recipe_error(
          place + "'" + *pattern + "' names parameters that are not trained; " + sdk::nearest_names(*pattern, subject.names),
          "what is frozen is not updated: name what is trained, or leave this out");
    const std::string noun = spec.matches == "trained" ? "parameter" : noun_of(spec.matches);
    const Names& near = subject.names.empty() ? subject.others : subject.names;
    return recipe_error(place + "no " + noun + " is called '" + *pattern + "'; " + sdk::nearest_names(*pattern, near),
                        "* stands for any characters, and a pattern has to match a whole name");
  }
  return ok();
}

Status check(const Compilation& c, const Subject& subject) {
  for (const auto& s : c.strategies) {
    const Table& values = s->options().values();
    for (const OptionSpec& spec : s->spec().options) {
      const auto value = values.find(spec.name);
      if (value == values.end()) continue;
      // A default is for all models: that it finds nothing in this one says nothing.
      const bool given = static_cast<const Value::variant&>(value->second) != static_cast<const Value::variant&>(spec.fallback);
      if (spec.matches == subject.matches && given) TRY_STATUS(check_option(*s, "'" + spec.name + "'", spec, value->second, subject));
      const auto* tables = value->second.as<List>();
      for (size_t i = 0; tables && !spec.fields.empty() && i < tables->size(); ++i) {
        const auto* table = (*tables)[i].as<Table>();
        for (const OptionSpec& field : spec.fields)
          if (const auto at = table->find(field.name); field.matches == subject.matches && at != table->end())
            TRY_STATUS(check_option(*s, "'" + spec.name + "', entry " + std::to_string(i + 1), field, at->second, subject));
      }
    }
  }
  return ok();
}

Names names_of(const Graph& graph, uint32_t kind, uint64_t without_flags) {
  Names out;
  for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
    if (const GraphTensor& x = graph.tensor(t); x.kind == kind && !(x.flags & without_flags)) out.push_back(x.name);
  return out;
}

}  // namespace

Status check_matches(const Compilation& c) {
  const Graph& graph = c.graph;
  Names nodes;
  for (const galley_node n : graph.section(Section::Forward)) nodes.push_back(graph.node(n).name);
  TRY_STATUS(check(c, {"nodes", std::move(nodes), {}}));
  return check(c, {"parameters", names_of(graph, GALLEY_KIND_PARAMETER, 0), {}});
}

Status check_trained_matches(const Compilation& c) {
  if (!c.trains()) return ok();
  const Graph& graph = c.graph;
  Names trained;
  for (const galley_tensor t : c.decisions.trainable) trained.push_back(graph.tensor(t).name);
  return check(c, {"trained", std::move(trained), names_of(graph, GALLEY_KIND_PARAMETER, GALLEY_TENSOR_TRAINABLE)});
}

Status check_state_matches(const Compilation& c) {
  return c.trains() ? check(c, {"states", names_of(c.graph, GALLEY_KIND_STATE, 0), {}}) : ok();
}

Status check_optimizers(const Compilation& c) {
  if (!c.trains()) return ok();
  std::set<int> updating;
  for (const galley_tensor t : c.decisions.trainable) updating.insert(c.graph.tensor(t).update_use);
  for (size_t i = 0; i < c.strategies.size(); ++i) {
    const LoadedStrategy& s = *c.strategies[i];
    const int use = static_cast<int>(i);
    if (!s.update() || !(s.update()->stages & GALLEY_STAGE_STEP) || updating.contains(use)) continue;
    std::string others;
    for (const int other : updating)
      if (other != no_use) others += (others.empty() ? "" : " and ") + label(c.strategies, other);
    return recipe_error(
        s.place().text() + ": " + s.name() + " has nothing to update: every parameter that is trained is that of " + others,
        "leave one of them out, or say which parameters each of them takes: use \"" + s.name() + "\" { parameters = { \"*.weight\" }, … }");
  }
  return ok();
}

}  // namespace galley
