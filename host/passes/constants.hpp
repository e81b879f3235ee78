// Tells from which tensors constants are made, for the passes that order, load and make them again.
#pragma once

#include <vector>

#include "host/passes/compilation.hpp"

namespace galley {

/// Returns for each tensor whether it can change: a parameter that an update may write, a state, or a constant made from one of these.
std::vector<bool> changing_tensors(const Graph& graph);

/// Returns the tensor that a constant copies into its own dtype; 0 if the constant is no copy.
galley_tensor copied_by(const Compilation& c, const GraphTensor& constant);

}  // namespace galley
