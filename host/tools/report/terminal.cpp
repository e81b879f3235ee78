#include "host/tools/report/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "host/base/printable.hpp"
#include "host/tools/report/columns.hpp"

namespace galley {

int terminal_columns(int descriptor) {
  winsize size = {};
  return isatty(descriptor) && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

size_t prose_columns() {
  return isatty(STDOUT_FILENO) ? static_cast<size_t>(std::max(terminal_columns(), 20)) : std::numeric_limits<size_t>::max() / 4;
}

bool terminal_has_colours() {
  const char* none = std::getenv("NO_COLOR");
  return isatty(STDOUT_FILENO) && !(none && *none);
}

RedMarks red_marks() { return terminal_has_colours() ? RedMarks{"\x1b[1;31m", "\x1b[0m"} : RedMarks{}; }

std::string shown(const std::string& text) { return isatty(STDOUT_FILENO) ? printable(text, Lines::Keep) : text; }

void print_lines(const std::string& text) { print_lines(text, {}); }

void print_lines(const std::string& text, const RedMarks& own) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.size();
    std::string_view mark;
    for (const std::string_view one : {std::string_view(own.begin), std::string_view(own.end)})
      if (const size_t found = one.empty() ? text.npos : text.find(one, at); found < end) {
        end = found;
        mark = one;
      }
    out += shown(text.substr(at, end - at));
    out += mark;
    at = end + mark.size();
  }
  std::fputs(wrapped_lines(out, prose_columns()).c_str(), stdout);
}

}  // namespace galley
