// Finds the saved tensors, on which `decide` asks strategies: those that forward leaves for backward, and those that enter blocks.
#pragma once

#include "host/passes/compilation.hpp"

namespace galley {

/// Returns the saved tensors with the price of recomputing each: that of the nodes between it and the saved tensors that it is made from.
Result<SavedSet> find_saved(const Compilation& c);

}  // namespace galley
