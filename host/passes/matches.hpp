// Options that are patterns of names: one that finds nothing is a typing error, which would change what is trained in silence.
#pragma once

#include "host/passes/compilation.hpp"

namespace galley {

/// Holds the patterns that the recipe gives in options whose manifest says matches = "parameters" or "nodes" against the names that there
/// are. An error names strategy, option and pattern, and the nearest names.
Status check_matches(const Compilation& c);
/// Likewise of matches = "trained", once it is known what is trained.
Status check_trained_matches(const Compilation& c);
/// Likewise of matches = "states", once updates have made them.
Status check_state_matches(const Compilation& c);

/// Each optimizer has something to update: one that others leave nothing is an error, which names it and them.
Status check_optimizers(const Compilation& c);

}  // namespace galley
