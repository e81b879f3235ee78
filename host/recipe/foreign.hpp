// What other trainers call what a recipe says: for hints.
#pragma once

#include <filesystem>
#include <string>

namespace galley {

struct ForeignName {
  std::string argument;  ///< what the recipes in scripts/ call such an argument: "lr" of learning_rate; "": nothing
  std::string written;   ///< how a recipe writes it, where that is no option of the same table; "": it does not
};

/// Of a name that other trainers give to something, by other_trainers.toml among Galley's own modules: it names strategies, as the host does
/// not. Nothing where nobody calls anything so.
ForeignName foreign_name(const std::filesystem::path& library, const std::string& name);

}  // namespace galley
