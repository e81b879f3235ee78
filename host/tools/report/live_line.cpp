#include "host/tools/report/live_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "host/base/printable.hpp"
#include "host/tools/report/columns.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

/// Returns the seconds of a steady clock.
double now_in_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

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
  const double now = now_in_seconds();
  if (now - last_ < interval) return false;
  last_ = now;
  return true;
}

void PartsLine::begins(int64_t done, int64_t all, const std::string& what) {
  const double now = now_in_seconds();
  if (first_ < 0) first_ = now, from_ = done;
  const int64_t of_these = done - from_;
  char left[24] = "", text[200];
  if (of_these > 0) duration_text(left, (now - first_) / static_cast<double>(of_these) * static_cast<double>(all - done));
  const std::string of = std::to_string(all);
  std::snprintf(text, sizeof text, "%s%*lld of %s: %s%s%8s", prefix_, static_cast<int>(of.size()), static_cast<long long>(done + 1),
                of.c_str(), printable(what, Lines::Escape).c_str(), of_these > 0 ? "  ETA " : "", left);
  if (live_.terminal()) return live_.show(text);
  if (!live_.due(5)) return;
  std::FILE* out = descriptor_ == STDERR_FILENO ? stderr : stdout;
  std::fprintf(out, "%s\n", text);
  std::fflush(out);
}

}  // namespace galley
