// What can be decided on: what forward leaves for backward and what enters blocks, with the price of not keeping it.
#pragma once

#include "host/passes/compilation.hpp"

namespace galley {

/// The price of a tensor is that of the nodes between it and the tensors of the set that it is made from.
Result<SavedSet> find_saved(const Compilation& c);

}  // namespace galley
