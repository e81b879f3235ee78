// Finds the known name that is nearest to an unknown one, for "did you mean".
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace galley {

/// Returns the candidate with the smallest edit distance (insert, delete, replace, swap of neighbours) to `name`, or "" if none is nearer
/// than half of the name's length (at least 1, at most 3 edits). Ties go to the earlier candidate. [thread-safe]
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// Returns "did you mean 'x'?", or "" if nothing is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace galley
