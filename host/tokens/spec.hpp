// Reading a DataSpec: its options, errors with the recipe's line. For the sources only.
#pragma once

#include <string>

#include "host/base/option_reader.hpp"
#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// "recipe.lua:5: data.text: <cause>", exit code Recipe.
Error data_error(const DataSpec& spec, const std::string& cause, std::string hint = {});

/// The data's options, which it outlives.
OptionReader options_of(const DataSpec& spec);

}  // namespace galley
