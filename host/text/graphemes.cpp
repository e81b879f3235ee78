#include "host/text/graphemes.hpp"

#include <utf8proc.h>

#include "host/text/unicode.hpp"

namespace galley {

size_t first_grapheme(std::string_view text) {
  CodePoint last = next_code_point(text);
  size_t end = last.bytes;
  utf8proc_int32_t state = 0;
  while (end < text.size()) {
    const CodePoint c = next_code_point(text.substr(end));
    // Two of ASCII are two clusters, but for the end of a line.
    if (last.value < 0x80 && c.value < 0x80 && last.value != '\r') break;
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value), static_cast<utf8proc_int32_t>(c.value), &state)) break;
    end += c.bytes;
    last = c;
  }
  return end;
}

}  // namespace galley
