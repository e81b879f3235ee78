// What a plugin's `galley_graph*` points to: the draft on which its verbs work while one call of a strategy or of a gradient rule runs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "galley/galley.h"
#include "host/graph/draft.hpp"
#include "host/plugins/loader.hpp"
#include "host/plugins/strategy.hpp"

namespace galley {

struct Compilation;

struct GraphHandle {
  Draft& draft;
  Plugins* plugins = nullptr;                ///< never null where strategies load or save
  const LoadedStrategy* strategy = nullptr;  ///< null: the call is none of a strategy
  std::optional<Error> refused = {};         ///< why a verb was refused last: if the plugin's call then fails, this is the reason

  galley_graph* get() { return reinterpret_cast<galley_graph*>(this); }

  /// Returns the scalar of an option of the strategy, times a factor.
  Result<galley_tensor> option(const std::string& name, double factor = 1);
  /// Returns the learning rate of one parameter, which strategies may have scaled.
  Result<galley_tensor> rate(const std::string& name, galley_tensor parameter);

  // The tables of verbs: the reader in every phase, one of the others by the phase.
  static const galley_graph_reader* reader();
  static const galley_graph_verbs* verbs();
  static const galley_model_verbs* model_verbs();
  static const galley_load_verbs* load_verbs();
  static const galley_export_verbs* export_verbs();
  static const galley_update_verbs* update_verbs();
};

/// Calls into a strategy, which builds as `author`. A bad status or an exception becomes an error that names the strategy.
Status call_strategy(Compilation& c, Author author, std::string_view what,
                     const std::function<galley_status(galley_graph*, galley_error*)>& call);

}  // namespace galley
