// Text on the terminal, as wide as it is.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace galley {

/// The width of the terminal that a descriptor is; 80 where it is none, or does not say.
int terminal_columns(int descriptor = 1);
/// Where lines on the standard output are broken, and names in tables cut: at the width of the terminal; nowhere if it is none, as
/// programs read lines.
size_t prose_columns();
/// The standard output is a terminal, and the environment's NO_COLOR is empty.
bool terminal_has_colours();
/// What begins and ends a text that is to be red; nothing where there are no colours.
struct RedMarks {
  const char *begin = "", *end = "";
};
RedMarks red_marks();
/// What the standard output is to show of a text with names and paths in it: on a terminal control characters are shown, not obeyed.
std::string shown(const std::string& text);
/// Prints a text on the standard output as shown() has it, its lines broken there by wrapped_lines().
void print_lines(const std::string& text);
/// The same of a text in which these marks are Galley's own.
void print_lines(const std::string& text, const RedMarks& own);
/// The same of what printf would print.
template <class First, class... Rest>
void print_lines(const char* format, First first, Rest... rest) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, format, first, rest...)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, first, rest...);
  print_lines(text);
}

}  // namespace galley
