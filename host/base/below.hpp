// Tells whether a path lies in a folder. Header-only.
#pragma once

#include <algorithm>
#include <filesystem>

namespace galley {

/// Returns whether the path is the folder or lies below it. Compares names, so both must be real paths.
inline bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

}  // namespace galley
