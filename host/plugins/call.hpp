// Every call into a plugin goes through here: what comes back as a status, or as an exception that should not have come at all, is an
// Error that names the plugin, the strategy and the recipe's line.
#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "galley/abi.h"
#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/plugins/fault.hpp"
#include "host/plugins/undisturbed.hpp"

namespace galley {

/// Who is called, for messages.
struct Caller {
  std::string plugin;
  std::string strategy = {};  ///< empty: something that no strategy of the recipe stands for, such as an op or a device
  Place place = {};           ///< of the strategy's `use`
};

/// Whose fault GALLEY_INVALID and GALLEY_UNSUPPORTED are. While a run is planned they speak of the recipe; later nothing is left to be
/// refused.
enum class Phase { Plan, Run };

/// "recipe.lua:14: NAME: <text>", exit code Recipe, where the plugin refuses what the recipe asks; "recipe.lua:14: plugin 'ID' failed in
/// create: <text>", exit code Plugin, where it is at fault.
Error plugin_failure(const Caller& caller, std::string_view what, galley_status status, const galley_error& error,
                     Phase phase = Phase::Plan);
/// What a plugin did wrong in a call, as found by the host.
Error plugin_fault(const Caller& caller, std::string_view what, const Error& found);
/// Returns the same error for an exception.
Error plugin_exception(const Caller& caller, std::string_view what, std::string_view text);

/// Calls fn(galley_error*), which returns a galley_status.
template <class Fn>
Status call_plugin(const Caller& caller, std::string_view what, Fn&& fn, Phase phase = Phase::Plan) {
  galley_error error = GALLEY_ERROR_INIT;
  const Calling calling({caller.plugin, what, caller.strategy});
  const Undisturbed before(caller.plugin, what);
  try {
    const galley_status status = fn(&error);
    if (const std::string wrong = before.disturbed(); !wrong.empty()) return plugin_fault(caller, what, plugin_error(wrong));
    if (status == GALLEY_OK) return ok();
    return plugin_failure(caller, what, status, error, phase);
  } catch (const std::exception& exception) {
    return plugin_exception(caller, what, exception.what());
  } catch (...) {
    return plugin_exception(caller, what, "an exception of unknown type");
  }
}

}  // namespace galley
