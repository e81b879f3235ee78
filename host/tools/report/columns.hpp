// Text on a terminal, whose width is counted in columns: UTF-8, of which a character takes none, one or two.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace galley {

/// Columns that the text takes: none for combining marks, two for characters of East Asia and emoji. A byte that is no UTF-8 takes one.
size_t display_width(std::string_view text);
/// How many bytes from the text's begin take at most so many columns; no character is cut. Allocates nothing.
size_t bytes_within(std::string_view text, size_t columns);
/// The text if it takes at most `columns`, else its begin and its end around "…": names that are alike differ at either end.
std::string cut_middle(std::string_view text, size_t columns);
/// cut_middle(), then spaces up to `columns`; at the right, or at the left.
std::string left_in(std::string_view text, size_t columns);
std::string right_in(std::string_view text, size_t columns);
/// Lines of at most `columns`, broken at spaces; those after the first begin with `indent` spaces. A longer word keeps a line of its own.
/// Line ends in the text stay. No line end is added after the last one.
std::string wrapped(std::string_view text, size_t columns, size_t indent = 0);
/// The same of each line of a text by itself. What is broken goes on below the column where the line's last entry begins: after its
/// indent, or after the last two spaces within its first half.
std::string wrapped_lines(std::string_view text, size_t columns);
/// Whether the environment's locale (LC_ALL, LC_CTYPE, LANG) is one of UTF-8.
bool utf8_locale();

}  // namespace galley
