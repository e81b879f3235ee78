// Reads a DataSpec's options, and makes errors with the recipe's line, for sources of data.
#pragma once

#include <string>

#include "host/base/option_reader.hpp"
#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Makes the error "recipe.lua:5: data.text: <cause>", exit code Recipe.
Error data_error(const DataSpec& spec, const std::string& cause, std::string hint = {});

/// Returns a reader of the data's options, which it refers to.
OptionReader options_of(const DataSpec& spec);

}  // namespace galley
