#include "host/base/printable.hpp"

#include <cstdio>

namespace galley {

std::string printable(std::string_view text, Lines lines) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    const bool wide = byte == 0xC2 && next >= 0x80 && next < 0xA0;  // in UTF-8
    const bool kept = lines == Lines::Keep && (byte == '\n' || byte == '\t');
    if ((byte >= 0x20 && byte != 0x7f && !wide) || kept) {
      out += text[i];
      continue;
    }
    char code[8];
    std::snprintf(code, sizeof code, byte == '\n' ? "\\n" : "\\x%02x", static_cast<unsigned>(wide ? next : byte));
    out += code;
    if (wide) ++i;
  }
  return out;
}

}  // namespace galley
