// Verifies the graph after each pass: checks what must hold whoever has built it.
#pragma once

#include <string_view>

#include "host/passes/compilation.hpp"

namespace galley {

/// Checks every tensor and node:
///   - ranks, dtypes and kinds are valid; a node has the operands that its op must have, and no more than it takes;
///   - the op's shape rule accepts every node, and its outputs are as the rule says;
///   - a transient is written once before anything adds to it or reads it, in its own part of the run;
///   - nothing writes what is loaded, what the loader fills or what is frozen; a parameter or a state is written by the update only;
///   - once there is a backward graph, every gradient is written.
/// An error names the pass, the node, the op and who made it: exit code Plugin where that is a plugin's strategy or an op's gradient rule,
/// a mistake of the model's family where it is the model's own. [plan-time]
Status verify_graph(Compilation& c, std::string_view pass);

}  // namespace galley
