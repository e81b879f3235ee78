// Makes text from files and strangers safe for a terminal: control characters are shown, not obeyed.
#pragma once

#include <string>
#include <string_view>

namespace galley {

enum class Lines { Keep, Escape };  ///< Keep: line ends and tabs stay

/// Returns the text with its control characters as "\n" or "\x1b": those of one byte (also 0x80 to 0x9F outside of UTF-8) and those of
/// Unicode (U+0080 to U+009F).
std::string printable(std::string_view text, Lines lines);

}  // namespace galley
