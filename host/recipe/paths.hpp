// Which files a recipe may name. Its author's own may name any file that its author can read. One that came from somebody else is
// confined: what it names by itself lies in its own folder, and everything else must have come from the person at the command line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Immutable. [thread-safe]
class PathRules {
 public:
  /// `folder` is the recipe's; `directory` what paths of the command line are relative to (both may be relative); `given` are the values
  /// of --set that are strings.
  PathRules(const std::filesystem::path& folder, const std::filesystem::path& directory, std::vector<std::string> given, Confine confine);

  /// The path, absolute, symbolic links resolved as far as it exists. One that equals a given text or lies below it (text + "/…") is
  /// relative to `directory`, any other to the folder. Of a confined recipe, the first must stay below the given text's real path, and
  /// the second below the folder's. The error has no place.
  Result<std::filesystem::path> resolve(const std::string& text) const;

  /// Of a confined recipe, an error for the first link in a folder of its own that leads out of roots(). `resolved` is from resolve().
  Status check_links(const std::filesystem::path& resolved) const;

  /// Of a confined recipe: its folder, and what --set gives (of a pattern, the folder in which it begins), as real paths. Otherwise none.
  const std::vector<std::filesystem::path>& roots() const { return roots_; }

 private:
  std::filesystem::path folder_, directory_;
  std::vector<std::string> given_;
  Confine confine_;
  std::vector<std::filesystem::path> roots_;  // the first one is the folder
};

/// The error for a file that a confined recipe reaches and may not read. `real` is where it leads.
Error leads_out(const std::string& name, const std::filesystem::path& real);

}  // namespace galley
