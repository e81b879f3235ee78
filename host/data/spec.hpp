// Reading a DataSpec: options by name and type, errors with the recipe's line. For the sources only.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/data/window.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// "recipe.lua:5: data.text: <cause>", exit code Recipe.
Error data_error(const DataSpec& spec, const std::string& cause, std::string hint = {});

/// An option that the source does not know is an error that suggests the nearest one it knows.
Status check_options(const DataSpec& spec, std::initializer_list<const char*> known);

/// A string, or `otherwise` where the option is absent.
Result<std::string> string_option(const DataSpec& spec, const char* name, std::string otherwise);
/// A string or a list of strings; never empty.
Result<std::vector<std::string>> strings_option(const DataSpec& spec, const char* name);
/// true or false, or `otherwise`.
Result<bool> flag_option(const DataSpec& spec, const char* name, bool otherwise);
/// The option's value; null where it is absent or nil.
const Value* find_option(const DataSpec& spec, const char* name);
/// One of `choices`, or the first of them where the option is absent; its index.
Result<size_t> choice_option(const DataSpec& spec, const char* name, std::initializer_list<const char*> choices);
/// A number in [0, 1), or `otherwise`.
Result<double> fraction_option(const DataSpec& spec, const char* name, double otherwise);

/// The recipe's `batch` and `length`, both of which the source needs.
Result<BatchLayout> recipe_layout(const DataSpec& spec, const Recipe& recipe);
/// B and S are at least 1 and B · S fits 31 bits.
Status check_layout(const DataSpec& spec, const BatchLayout& layout);

}  // namespace galley
