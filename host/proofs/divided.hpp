// Runs in which strategies have divided parameters among processes that compute the same micro-batches (divide, rewrite.h).
#pragma once

#include "host/passes/compilation.hpp"

namespace galley {

/// Proves that a run in which strategies have divided parameters computes what it would compute with whole ones: random numbers are drawn, and
/// sums made, of what is the same on all processes; what is not is an element of a part, and belongs to a tensor that is divided. The error
/// names who does otherwise.
Status check_divided(const Compilation& c);

}  // namespace galley
