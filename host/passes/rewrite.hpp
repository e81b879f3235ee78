// Strategies change the model, and what is saved of it.
#pragma once

#include "host/passes/compilation.hpp"

namespace galley {

/// Asks all strategies, in the recipe's order, to rewrite a GALLEY_SEGMENT_…; their nodes are made in `section`.
Status rewrite_segment(Compilation& c, uint32_t segment, Section section);

}  // namespace galley
