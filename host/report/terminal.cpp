#include "host/report/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "host/base/columns.hpp"

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

void print_lines(const std::string& text) { std::fputs(wrapped_lines(text, prose_columns()).c_str(), stdout); }

}  // namespace galley
