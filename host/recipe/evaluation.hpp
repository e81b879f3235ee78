// Reads evaluate = { prompts = FILE, match = … } of a recipe.
#pragma once

#include <functional>

#include "host/recipe/fields.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// `resolve` makes the path of a file absolute, by the recipe's rules. Errors have the line of the entry.
Result<Evaluation> read_evaluation(const Fields& fields, const std::function<Status(Value*, const Place&)>& resolve);

}  // namespace galley
