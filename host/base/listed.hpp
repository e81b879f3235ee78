// Lists names in messages.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace galley {

/// Returns "'a', 'b', …": the first `most` names, each of at most `longest` bytes.
inline std::string listed(const std::vector<std::string>& names, size_t most, size_t longest = std::string::npos) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), most); ++i)
    text += (i ? ", '" : "'") + names[i].substr(0, longest) + (names[i].size() > longest ? "…'" : "'");
  return names.size() > most ? text + ", …" : text;
}

}  // namespace galley
