// Compiles a model's graph and the recipe's strategies into a program. compile.cpp has the list of passes.
#pragma once

#include <vector>

#include "host/graph/draft.hpp"
#include "host/passes/compile_options.hpp"
#include "host/passes/strategies.hpp"
#include "host/plan/program.hpp"
#include "host/plan/target.hpp"

namespace galley {

/// Runs all passes and returns the program. `draft` holds the family's forward graph, and is changed. [main-thread] [plan-time]
Result<Program> compile(Draft& draft, Strategies strategies, Plugins& plugins, const Target& target, const CompileOptions& options);

/// Returns the passes in the order in which they run.
std::vector<PassInfo> pass_list();

}  // namespace galley
