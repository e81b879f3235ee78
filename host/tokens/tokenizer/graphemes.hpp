// Finds extended grapheme clusters, what a reader takes for one character (Unicode Standard Annex 29).
#pragma once

#include <cstddef>
#include <string_view>

namespace galley {

/// Returns the bytes of the cluster with which `text`, which is UTF-8 and not empty, begins.
size_t first_grapheme(std::string_view text);

}  // namespace galley
