#include "host/report/live_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "host/base/columns.hpp"
#include "host/report/terminal.hpp"

namespace galley {

const char* duration_text(char (&text)[24], double seconds) {
  const auto s = std::llround(std::min(std::max(seconds, 0.0), 1e9));
  if (s >= 3600) std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else if (s >= 60) std::snprintf(text, sizeof text, "%lld:%02lld", s / 60, s % 60);
  else std::snprintf(text, sizeof text, "%lld s", s);
  return text;
}

LiveLine::LiveLine(int descriptor) : descriptor_(descriptor), terminal_(isatty(descriptor) == 1) {}

int LiveLine::columns() const { return std::max(terminal_columns(descriptor_) - 1, 1); }

void LiveLine::show(const char* text) {
  if (!terminal_) return;
  const size_t bytes = std::min(bytes_within(text, static_cast<size_t>(columns())), sizeof drawn_ - 1);
  if (std::strncmp(drawn_, text, bytes) == 0 && drawn_[bytes] == '\0') return;
  std::memcpy(drawn_, text, bytes);
  drawn_[bytes] = '\0';
  std::FILE* out = descriptor_ == STDERR_FILENO ? stderr : stdout;
  char line[sizeof drawn_ + 8];
  const int length = std::snprintf(line, sizeof line, "\r%s\x1b[K", drawn_);
  std::fwrite(line, 1, static_cast<size_t>(length), out);
  std::fflush(out);
}

void LiveLine::clear() {
  if (!drawn_[0]) return;
  drawn_[0] = '\0';
  std::FILE* out = descriptor_ == STDERR_FILENO ? stderr : stdout;
  std::fputs("\r\x1b[K", out);
  std::fflush(out);
}

void LiveLine::keep() {
  if (!drawn_[0]) return;
  drawn_[0] = '\0';
  std::FILE* out = descriptor_ == STDERR_FILENO ? stderr : stdout;
  std::fputs("\n", out);
  std::fflush(out);
}

bool LiveLine::due(double interval) {
  const double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (now - last_ < interval) return false;
  last_ = now;
  return true;
}

}  // namespace galley
