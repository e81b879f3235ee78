// Makes the layout of a batch from a recipe, for sources of data.
#pragma once

#include "host/base/result.hpp"
#include "host/data/window.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Returns the layout by the recipe's `batch` and `length`; an error if one is missing.
Result<BatchLayout> recipe_layout(const DataSpec& spec, const Recipe& recipe);
/// Checks that B and S are at least 1 and that B · S fits 31 bits.
Status check_layout(const DataSpec& spec, const BatchLayout& layout);

}  // namespace galley
