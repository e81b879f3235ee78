// Which files a recipe may name. Its author's own may name any file that its author can read. One that came from somebody else is
// confined: what it names by itself lies in its own folder, and everything else must have come from the person at the command line.
// Here names are judged; what is opened is judged again by base/confinement.hpp, since links may lead elsewhere by then.
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

/// Used by one thread at a time.
class PathRules {
 public:
  /// `folder` is the recipe's; `directory` what paths of the command line are relative to (both may be relative); `given` are the values
  /// of --set that are strings. `within`: what holds instead of the recipe's folder and of what is given; may be null.
  PathRules(const std::filesystem::path& folder, const std::filesystem::path& directory, std::vector<std::string> given, Confine confine,
            std::shared_ptr<const Confinement> within = nullptr);

  /// The path, absolute, symbolic links resolved as far as it exists; of a link to a file only those of its folder, so that the files that
  /// belong to it are looked for beside the name. One that equals a given text or lies below it (text + "/…") is relative to `directory`,
  /// any other to the folder. Of a confined recipe, the first must stay below the given text's real path, the second below the folder's.
  /// There a text of dots and slashes alone ("/", ".") gives nothing: nearly any path begins with it. The error has no place.
  Result<std::filesystem::path> resolve(const std::string& text);

  /// Of a confined recipe, what it may read: its folder, and those given texts below which a path was resolved (of a pattern, the folder
  /// in which it begins). Otherwise null.
  std::shared_ptr<const Confinement> confinement() const;

 private:
  std::filesystem::path folder_, directory_;
  std::vector<std::string> given_;
  Confine confine_;
  std::shared_ptr<const Confinement> within_;
  std::set<std::filesystem::path> lent_;  // of the given texts
};

}  // namespace galley
