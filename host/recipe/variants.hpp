// Reads what compare { … } returns: its variants, and the recipe of each.
#pragma once

#include <map>
#include <string>

#include "host/base/result.hpp"
#include "host/recipe/fields.hpp"
#include "host/recipe/language.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Reads the comparison. `fields` are its own entries.
Result<CompareSpec> compare_spec(const Entry& comparison, const Fields& fields);

/// Under a budget, writes the number of steps that `sets` gives as "budget" or "trial" into the variant's entries. See read_compare().
Status set_budget(Entry& variant, const CompareSpec& spec, const std::map<std::string, std::string>& sets);

/// Joins what is common to all variants with what this one says instead or in addition. "" is an error that lists them.
Result<Entry> variant_of(const Entry& comparison, const CompareSpec& spec, const std::string& variant);

}  // namespace galley
