// Finds the folder of prepared data: $GALLEY_CACHE, else $XDG_CACHE_HOME/galley, else $HOME/.cache/galley.
//
// Galley removes files there by itself, so it works only in a folder that it marked as its own, with a CACHEDIR.TAG (bford.info/cachedir)
// that names Galley. It marks a folder that it made, or that is empty, or in which everything has a name that Galley gives. In any other
// folder it takes the folder "galley" within it, by the same rule.
#pragma once

#include <ctime>
#include <filesystem>
#include <string>

#include "host/base/result.hpp"

namespace galley {

/// The extensions of files in the cache.
inline constexpr const char* kCacheKinds[] = {"tokens", "rows", "choices"};

/// Returns the folder; makes and marks it if need be. A folder that cannot be written is no error here: data in it can be used.
Result<std::filesystem::path> cache_folder();

/// Removes what a killed process has left, and files that no run has used for 30 days: only regular files with names that Galley gives, in
/// a folder that it has marked. Errors are ignored.
///
/// Clocks jump, so `now` is believed only so far: the time of the mark is the folder's own, and each call moves it towards `now`, by a day
/// at most. By that time files are judged. Files of the future are set back to `now`.
void clean_cache(const std::filesystem::path& folder, time_t now);

/// Makes an error of the cache, with a hint to use another folder.
Error cache_error(Error error);

}  // namespace galley
