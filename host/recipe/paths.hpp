// Which files a recipe may name. It is text from anybody: what it names by itself lies in its own folder; everything else must have come
// from the person at the command line.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Immutable. [thread-safe]
class PathRules {
 public:
  /// `folder` is the recipe's; `directory` what paths of the command line are relative to (both may be relative); `given` are the values
  /// of --set that are strings.
  PathRules(const std::filesystem::path& folder, const std::filesystem::path& directory, std::vector<std::string> given);

  /// The path, absolute, symbolic links resolved as far as it exists. One that equals a given text or lies below it (text + "/…") is
  /// relative to `directory` and must stay below that text's real path; any other is relative to the folder and must stay below its real
  /// path. The error has no place.
  Result<std::filesystem::path> resolve(const std::string& text) const;

 private:
  std::filesystem::path folder_, directory_;
  std::vector<std::string> given_;
};

}  // namespace galley
