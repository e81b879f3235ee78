#include "host/base/printable.hpp"

#include <algorithm>
#include <cstdio>

namespace galley {
namespace {

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

/// Bytes of the character of UTF-8 that a text begins with; 0: it begins with none.
size_t character_in(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t bytes = first < 0x80 ? 1 : first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  return bytes <= text.size() && std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(bytes ? bytes : 1), continues)
             ? bytes
             : 0;
}

}  // namespace

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t bytes = character_in(text.substr(i));
    const bool wide = bytes == 2 && byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;  // a control character in two bytes
    const bool lone = bytes == 0 && byte < 0xA0;                                                     // one of a terminal that reads bytes
    const bool kept = lines == Lines::Keep && (byte == '\n' || byte == '\t');
    if ((byte >= 0x20 && byte != 0x7f && !wide && !lone) || kept) {
      out += text.substr(i, std::max<size_t>(bytes, 1));
      i += std::max<size_t>(bytes, 1);
      continue;
    }
    char code[8];
    std::snprintf(code, sizeof code, byte == '\n' ? "\\n" : "\\x%02x",
                  static_cast<unsigned>(wide ? static_cast<unsigned char>(text[i + 1]) : byte));
    out += code;
    i += wide ? 2 : 1;
  }
  return out;
}

}  // namespace galley
