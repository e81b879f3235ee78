// Declares every name that a recipe knows, except the options of strategies, which are in their manifests, and those of data
// (tokens/data_options.hpp). By this declaration recipes are read and unknown names are refused, and `galley recipe` prints it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/base/option_spec.hpp"

namespace galley {

/// A thing with a table of named options: the recipe itself, model { }, data.text { }, validate = { }, cosine { }.
struct Declared {
  std::string name;     ///< "cosine"
  std::string written;  ///< how a recipe writes it: "lr = cosine { peak = 1e-3, warmup = 100 }"
  std::string summary;  ///< one sentence
  std::vector<OptionSpec> options;
  /// Returns the option of that name, which must be declared.
  const OptionSpec& operator[](std::string_view option) const;
};

const Declared& declared_recipe();
const Declared& declared_compare();  ///< the options of compare { } that a recipe does not have
const Declared& declared_budget();   ///< the budget of a comparison
const Declared& declared_model();
const Declared& declared_validate();
const Declared& declared_evaluate();
const Declared& declared_save();
const std::vector<Declared>& declared_schedules();  ///< what an option that "may be a schedule" takes, beside functions

/// Returns the one of that name, which must be there.
const Declared& find_declared(const std::vector<Declared>& list, std::string_view name);
const Declared& declared_schedule(std::string_view name);

}  // namespace galley
