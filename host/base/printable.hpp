// Text from files and strangers on a terminal: control characters are shown, not obeyed.
#pragma once

#include <string>
#include <string_view>

namespace galley {

enum class Lines { Keep, Escape };  ///< Keep: line ends and tabs stay

/// The text with its control characters, those of one byte (also 0x80 to 0x9F outside of UTF-8) and those of Unicode (U+0080 to U+009F), as
/// "\n" or "\x1b".
std::string printable(std::string_view text, Lines lines);

}  // namespace galley
