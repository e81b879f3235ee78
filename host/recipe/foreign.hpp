// Translates the names of other trainers into those of recipes, for hints.
#pragma once

#include <filesystem>
#include <string>

namespace galley {

struct ForeignName {
  std::string argument;  ///< the name of such an argument in the recipes of scripts/: "lr" for learning_rate; "": they have none
  std::string written;   ///< how a recipe writes it, if that is no option of the same table; "": it cannot
};

/// Looks up a name of other trainers in other_trainers.toml, among Galley's own modules: that file may name strategies, which the host does
/// not. Returns nothing if no trainer has such a name.
ForeignName foreign_name(const std::filesystem::path& library, const std::string& name);

}  // namespace galley
