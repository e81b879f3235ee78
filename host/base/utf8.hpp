// UTF-8, and bytes that are none: names of files may be any.
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

/// The code point that `text`, which is not empty, begins with.
CodePoint next_code_point(std::string_view text);

void append_utf8(char32_t c, std::string* out);

/// `text` as it is where it is UTF-8; else with U+FFFD for what is broken, counted in `broken` (may be null).
std::string valid_utf8(std::string_view text, int64_t* broken);
bool is_utf8(std::string_view text);

/// Any bytes as UTF-8, for files that have to be UTF-8: text stays as it is, and each byte that is none becomes a character of its own, U+10F700
/// + byte (of a plane for private use). So that it can be undone, each byte of such a character that stood there becomes one, too.
std::string utf8_of_bytes(std::string_view bytes);
/// What utf8_of_bytes() was given.
std::string bytes_of_utf8(std::string_view text);

}  // namespace galley
