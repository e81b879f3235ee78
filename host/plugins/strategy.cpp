#include "host/plugins/strategy.hpp"

#include "host/plugins/abi.hpp"

namespace galley {
namespace {

template <class Interface, class Complete>
Status find_interface(const Caller& caller, const galley_strategy& table, const char* id, std::optional<Interface>* out,
                      Complete&& complete) {
  const Interface* found = nullptr;
  TRY_STATUS(call_plugin(caller, "get", [&](galley_error*) {
    found = static_cast<const Interface*>(table.get(table.self, id));
    return GALLEY_OK;
  }));
  if (!found) return ok();
  const std::string of = "plugin '" + caller.plugin + "': the " + id + " of " + caller.strategy;
  if (const std::string wrong = struct_problem(found); !wrong.empty()) return plugin_error(of + " " + wrong);
  const Interface read = read_struct(*found);
  if (!complete(read)) return plugin_error(of + " is not complete");
  *out = read;
  return ok();
}

}  // namespace

Result<std::unique_ptr<const LoadedStrategy>> LoadedStrategy::create(Plugins& plugins, const Use& use) {
  const StrategyRef found = TRY(plugins.strategy(use.name, use.place));
  std::unique_ptr<LoadedStrategy> out(new LoadedStrategy);
  out->spec_ = found.spec;
  out->plugin_ = found.plugin;
  out->caller_ = {found.plugin->manifest.id, use.name, use.place};
  out->options_ = TRY(Options::create(*found.spec, use));

  const galley_strategy& table = *TRY(plugins.load(found, use.place));
  const Caller& caller = out->caller_;
  TRY_STATUS(find_interface(caller, table, GALLEY_REWRITE, &out->rewrite_,
                            [](const auto& i) { return i.model || i.window || i.load || i.save || i.merge; }));
  TRY_STATUS(find_interface(caller, table, GALLEY_CLAIM, &out->claim_, [](const auto& i) { return i.claim != nullptr; }));
  TRY_STATUS(find_interface(caller, table, GALLEY_UPDATE, &out->update_,
                            [](const auto& i) { return i.build != nullptr && i.stages != 0 && i.stages < 2 * GALLEY_STAGE_AFTER; }));
  TRY_STATUS(find_interface(caller, table, GALLEY_SAVED, &out->saved_, [](const auto& i) { return i.decide != nullptr; }));
  TRY_STATUS(find_interface(caller, table, GALLEY_OBSERVER, &out->observer_, [](const auto& i) { return i.started && i.ended; }));
  TRY_STATUS(out->instance_.create(caller, table, *out->options_));
  return std::unique_ptr<const LoadedStrategy>(std::move(out));
}

}  // namespace galley
