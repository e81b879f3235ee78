// What compare { … } returned: which variants it has, and the recipe that each of them is.
#pragma once

#include <string>

#include "host/base/result.hpp"
#include "host/recipe/fields.hpp"
#include "host/recipe/language.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// `fields` are the comparison's own entries.
Result<CompareSpec> compare_spec(const Entry& comparison, const Fields& fields);

/// What is common to all variants, and what this one says instead or in addition. "" is an error that lists them.
Result<Entry> variant_of(const Entry& comparison, const CompareSpec& spec, const std::string& variant);

}  // namespace galley
