#include "host/tools/check/tests.hpp"

#include <algorithm>

#include "host/tools/check/rules.hpp"

namespace galley {
namespace {

/// The table of this name among those that the plugin registers; null: there is none.
template <class Table>
const Table* named(const std::vector<const Table*>& tables, const std::string& name) {
  const auto found = std::ranges::find_if(tables, [&](const Table* table) { return name == table->name; });
  return found == tables.end() ? nullptr : *found;
}
const StrategySpec* named(const std::vector<StrategySpec>& specs, const std::string& name) {
  const auto found = std::ranges::find(specs, name, &StrategySpec::name);
  return found == specs.end() ? nullptr : &*found;
}

/// What `Updated` (galley/cpp/optimizer.hpp) asks for, whether the manifest has it or not.
const std::set<std::string> kOfOptimizers = {"parameters", "weight_decay", "decay_on", "groups"};

}  // namespace

void check_asked(const StrategySpec& spec, const std::set<std::string>& asked, const std::string& but, TestLog& log) {
  for (const OptionSpec& option : spec.options)
    if (!asked.contains(option.name) && option.name != but && option.matches != "tokens")
      log.find("option '" + option.name + "'", "nothing asks for it", rules::kUnused);
  for (const std::string& name : asked)
    if (std::ranges::find(spec.options, name, &OptionSpec::name) == spec.options.end() && !kOfOptimizers.contains(name))
      log.find("option '" + name + "'", "it asks for it, and the manifest does not have it", rules::kUndeclared);
  log.held("asks for its options and no others");
}

Status run_check(const CheckContext& context, const std::string& name, TestLog& log) {
  if (name == kLibraryTest) return check_library(context, log);
  TRY_STATUS(context.plugins.load(context.plugin));
  const Library& library = *context.plugin.library;
  const Manifest& manifest = context.plugin.manifest;
  const auto after = [&](const char* word) { return name.starts_with(word) ? name.substr(std::string_view(word).size()) : ""; };
  if (const auto* op = named(library.ops, after("op "))) return check_op(context, *op, log);
  if (const std::string op = after("kernels of "); !op.empty()) return check_kernels(context, op, log);
  if (const auto* format = named(library.formats, after("format "))) return check_format(context, *format, log);
  if (const auto* ranks = named(library.ranks, after("ranks "))) return check_ranks(context, *ranks, log);
  if (const auto* source = named(manifest.sources, after("source "))) return check_source(context, *source, log);
  if (const auto* strategy = named(manifest.strategies, after("strategy "))) return check_strategy(context, *strategy, log);
  if (const auto* strategy = named(manifest.strategies, after("training with "))) return check_training(context, *strategy, log);
  return recipe_error("plugin '" + manifest.id + "' has no test '" + name + "'", "galley check DIR names all of them");
}

}  // namespace galley
