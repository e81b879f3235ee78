// Measures and breaks text for a terminal, in columns: a character of UTF-8 takes none, one or two.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace galley {

/// Returns the columns of a text: none for combining marks, two for characters of East Asia and emoji. A byte that is no UTF-8 takes one.
size_t display_width(std::string_view text);
/// Returns how many bytes from the text's begin take at most so many columns; cuts no character. Allocates nothing.
size_t bytes_within(std::string_view text, size_t columns);
/// Returns the text if it takes at most `columns`, else its begin and its end around "…": names that are alike differ at either end.
std::string cut_middle(std::string_view text, size_t columns);
/// cut_middle(), then spaces up to `columns`; at the right, or at the left.
std::string left_in(std::string_view text, size_t columns);
std::string right_in(std::string_view text, size_t columns);
/// Breaks a text at spaces into lines of at most `columns`; those after the first begin with `indent` spaces. A longer word has its own
/// line. Line ends in the text stay. No line end is added after the last one.
std::string wrapped(std::string_view text, size_t columns, size_t indent = 0);
/// Does the same to each line of a text by itself. A broken line goes on below the column where its last entry begins: after its indent, or
/// after the last two spaces within its first half.
std::string wrapped_lines(std::string_view text, size_t columns);
/// Returns whether the environment's locale (LC_ALL, LC_CTYPE, LANG) is one of UTF-8.
bool utf8_locale();

}  // namespace galley
