// Checks options that are patterns of names. A pattern that matches nothing is a typing error, which would silently change what is trained.
#pragma once

#include "host/passes/compilation.hpp"

namespace galley {

/// Compares the recipe's patterns with the names that there are, for options whose manifest says matches = "parameters" or "nodes". An
/// error names strategy, option and pattern, and the nearest names.
Status check_matches(const Compilation& c);
/// Does the same for matches = "trained", once it is known what is trained.
Status check_trained_matches(const Compilation& c);
/// Does the same for matches = "states", once updates have made them.
Status check_state_matches(const Compilation& c);

/// Checks that each optimizer has something to update. If others leave it nothing, the error names it and them.
Status check_optimizers(const Compilation& c);

}  // namespace galley
