// What a reader takes for one character: extended grapheme clusters (Unicode Standard Annex 29).
#pragma once

#include <cstddef>
#include <string_view>

namespace galley {

/// The bytes of the cluster that `text`, which is UTF-8 and not empty, begins with.
size_t first_grapheme(std::string_view text);

}  // namespace galley
