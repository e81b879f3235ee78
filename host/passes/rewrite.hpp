// Strategies change the model, what it begins with, and what is saved of it.
#pragma once

#include <string>

#include "host/passes/compilation.hpp"

namespace galley {

/// Asks all strategies to rewrite a GALLEY_SEGMENT_…, in the order of their phases; their nodes are made in `section`, and names that the
/// graph makes itself begin with `prefix`.
Status rewrite_segment(Compilation& c, uint32_t segment, Section section, const std::string& prefix = {});

}  // namespace galley
