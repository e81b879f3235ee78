// What a strategy has appended to the update graph, node by node.
#pragma once

#include <optional>

#include "host/passes/compilation.hpp"
#include "host/tools/check/tests.hpp"

namespace galley {

/// Which of the strategies of a compilation this one is; none: it is not there.
std::optional<int> use_in(const Compilation& c, const StrategySpec& strategy);

/// After the pass `update`: nodes that write a parameter or a state change nothing in a skipped step, and multiply gradients by the factor.
Status check_updates(const CheckContext& context, const StrategySpec& strategy, Compilation& c, TestLog& log);

/// After the last pass over graphs: ops of plugins that are not always there are of those that the manifest requires.
void check_requires(const CheckContext& context, const StrategySpec& strategy, const Compilation& c, TestLog& log);

}  // namespace galley
