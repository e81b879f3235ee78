// Checks which files a recipe may name. A user's own recipe may name any file that the user can read. A recipe from somebody else is
// confined: it may name files in its own folder, and others only if they come from the person at the command line. This checks names;
// base/confinement.hpp checks again what is opened, because links may lead elsewhere by then.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "host/base/confinement.hpp"
#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Resolves a recipe's paths, and knows which it may name. Used by one thread at a time.
class PathRules {
 public:
  /// `folder` is the recipe's; paths of the command line are relative to `directory` (both may be relative); `given` are the values of
  /// --set that are strings. `within` replaces the recipe's folder and what is given; may be null.
  PathRules(const std::filesystem::path& folder, const std::filesystem::path& directory, std::vector<std::string> given, Confine confine,
            std::shared_ptr<const Confinement> within = nullptr);

  /// Returns the path as absolute, with symbolic links resolved as far as it exists. If the file itself is a link, only its folder's links
  /// are resolved, so that files that belong to it are looked for beside its name. A path that equals a given text or lies below it (text +
  /// "/…") is relative to `directory`, any other to the folder. In a confined recipe, the first must stay below the given text's real path,
  /// the second below the folder's; there a text of dots and slashes alone ("/", ".") gives nothing, because nearly any path begins with
  /// it. The error has no place.
  Result<std::filesystem::path> resolve(const std::string& text);

  /// Returns what a confined recipe may read: its folder, and those given texts below which a path was resolved (for a pattern, the folder
  /// in which it begins). Returns null for other recipes.
  std::shared_ptr<const Confinement> confinement() const;

 private:
  std::filesystem::path folder_, directory_;
  std::vector<std::string> given_;
  Confine confine_;
  std::shared_ptr<const Confinement> within_;
  std::set<std::filesystem::path> lent_;  // of the given texts
};

}  // namespace galley
