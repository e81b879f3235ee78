// Prints text on the terminal, broken at its width.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace galley {

/// Returns the width of the terminal that a descriptor is; 80 if it is none, or does not say.
int terminal_columns(int descriptor = 1);
/// Returns the column at which lines on the standard output are broken, and names in tables cut: the width of the terminal. If it is no
/// terminal, nothing is broken, because programs read lines.
size_t prose_columns();
/// Returns whether the standard output is a terminal and the environment's NO_COLOR is empty.
bool terminal_has_colours();
/// The texts that begin and end red text; empty if there are no colours.
struct RedMarks {
  const char *begin = "", *end = "";
};
RedMarks red_marks();
/// Returns a text with names and paths as the standard output shows it: on a terminal control characters are shown, not obeyed.
std::string shown(const std::string& text);
/// Prints a text on the standard output as shown() returns it, with its lines broken by wrapped_lines().
void print_lines(const std::string& text);
/// Does the same with a text in which these marks are Galley's own.
void print_lines(const std::string& text, const RedMarks& own);
/// Does the same with what printf would print.
template <class First, class... Rest>
void print_lines(const char* format, First first, Rest... rest) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, format, first, rest...)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, first, rest...);
  print_lines(text);
}

}  // namespace galley
