// Decodes UTF-8, and handles bytes that are none: names of files may be any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace galley {

/// A code point and its bytes. Bytes that are no UTF-8 are U+FFFD, one for each maximal part that could have begun a code point (as Unicode
/// recommends and Python, Rust and browsers do); `valid` tells them from a U+FFFD that was written.
struct CodePoint {
  char32_t value = 0;
  uint32_t bytes = 0;
  bool valid = true;
};

/// Returns the code point with which `text`, which must not be empty, begins.
CodePoint next_code_point(std::string_view text);

void append_utf8(char32_t c, std::string* out);

/// Returns `text` with U+FFFD for what is no UTF-8, counted in `broken` (may be null).
std::string valid_utf8(std::string_view text, int64_t* broken);
bool is_utf8(std::string_view text);

/// Any bytes as UTF-8, for files that have to be UTF-8: text stays as it is, and each byte that is none becomes a character of its own,
/// U+10F700 + byte (of a plane for private use). So that it can be undone, each byte of such a character that stood there becomes one, too.
std::string utf8_of_bytes(std::string_view bytes);
/// What utf8_of_bytes() was given.
std::string bytes_of_utf8(std::string_view text);

}  // namespace galley
