// What constants are made from.
#pragma once

#include <vector>

#include "host/passes/compilation.hpp"

namespace galley {

/// By tensor: whether it is a parameter that an update may write, a state, or a constant that is made again whenever one of these changed.
std::vector<bool> changing_tensors(const Graph& graph);

/// The tensor that a constant copies into its own dtype; 0: the constant is no copy.
galley_tensor copied_by(const Compilation& c, const GraphTensor& constant);

}  // namespace galley
