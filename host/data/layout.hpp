// The layout of a batch that a recipe asks for.
#pragma once

#include "host/base/result.hpp"
#include "host/data/window.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// The recipe's `batch` and `length`, both of which the source needs.
Result<BatchLayout> recipe_layout(const DataSpec& spec, const Recipe& recipe);
/// B and S are at least 1 and B · S fits 31 bits.
Status check_layout(const DataSpec& spec, const BatchLayout& layout);

}  // namespace galley
