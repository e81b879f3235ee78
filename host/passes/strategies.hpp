// The recipe's strategies as passes see them: their order, their names in messages, and calls into them.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host/graph/graph.hpp"
#include "host/plugins/strategy.hpp"

namespace galley {

/// The strategies in the recipe's order. A `use` is an index into it.
using Strategies = std::span<const std::unique_ptr<const LoadedStrategy>>;

/// Returns the uses in the order of calls: by a number of the strategy (its phase, its order), then by name, then by options.
std::vector<int> in_order(Strategies strategies, const std::function<uint32_t(const LoadedStrategy&)>& number);

/// Returns "NAME (recipe.lua:9)", for messages and the plan; "" for no_use.
std::string label(Strategies strategies, int use);

/// Returns "NAME (recipe.lua:9), plugin 'ID'"; "" for no_use.
std::string label_and_plugin(Strategies strategies, int use);
/// Makes an error with exit code Plugin: the strategy's name, then what it has done wrong.
Error strategy_error(Strategies strategies, int use, const std::string& cause, std::string hint = {});

/// Returns the schedule of an option that is a number; an error names the option.
Result<Schedule> option_schedule(const LoadedStrategy& strategy, const std::string& option);

}  // namespace galley
