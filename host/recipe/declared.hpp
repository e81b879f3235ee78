// Every name that a recipe knows, besides the options of strategies, which are in their manifests: one declaration, by which recipes are
// read, by which unknown names are refused with the nearest one, and from which `galley recipe` prints what there is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/base/option_spec.hpp"

namespace galley {

/// What takes a table of named options: the recipe itself, model { }, data.text { }, validate = { }, cosine { }.
struct Declared {
  std::string name;     ///< "cosine"
  std::string written;  ///< how it stands in a recipe: "lr = cosine { peak = 1e-3, warmup = 100 }"
  std::string summary;  ///< one sentence
  std::vector<OptionSpec> options;
  /// The option of that name, which is declared.
  const OptionSpec& operator[](std::string_view option) const;
};

const Declared& declared_recipe();
const Declared& declared_compare();  ///< beside what a recipe takes
const Declared& declared_budget();   ///< of a comparison
const Declared& declared_model();
const Declared& declared_validate();
const Declared& declared_save();
const std::vector<Declared>& declared_data();       ///< data.KIND, by name
const std::vector<Declared>& declared_schedules();  ///< what an option that "may be a schedule" takes, but for functions

/// One of declared_data(), declared_schedules(); it is there.
const Declared& declared_data(std::string_view kind);
const Declared& declared_schedule(std::string_view name);

}  // namespace galley
