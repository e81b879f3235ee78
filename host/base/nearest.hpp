// "did you mean": the known name nearest to one that is not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace galley {

/// The candidate with the smallest edit distance (insert, delete, replace, swap of neighbours) to `name`, or "" when none is nearer than
/// half of the name's length (at least 1, at most 3 edits). Ties go to the earlier candidate. [thread-safe]
std::string nearest(std::string_view name, std::span<const std::string> candidates);

/// "did you mean 'x'?", or "" when nothing is near.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace galley
