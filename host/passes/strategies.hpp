// The recipe's strategies, as passes see them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/plugins/strategy.hpp"

namespace galley {

/// In the recipe's order. `use` is an index into it.
using Strategies = std::span<const std::unique_ptr<const LoadedStrategy>>;

/// The uses in the order in which they are called: by a number of the strategy (its phase, its order), then by its name, then by its options.
std::vector<int> in_order(Strategies strategies, const std::function<uint32_t(const LoadedStrategy&)>& number);

/// "NAME (recipe.lua:9)": for messages and the plan; "" for no_use.
std::string label(Strategies strategies, int use);

/// "NAME (recipe.lua:9), plugin 'ID'"; "" for no_use.
std::string label_and_plugin(Strategies strategies, int use);
/// Exit code Plugin: what a strategy has done wrong, after its name.
Error strategy_error(Strategies strategies, int use, const std::string& cause, std::string hint = {});

/// The schedule of an option that is a number; an error names the option.
Result<Schedule> option_schedule(const LoadedStrategy& strategy, const std::string& option);

/// Calls into a strategy, which builds as `author`. A bad status or an exception becomes an error that names it.
Status call_strategy(Graph& graph, Strategies strategies, Author author, std::string_view what,
                     const std::function<galley_status(galley_error*)>& call);

}  // namespace galley
