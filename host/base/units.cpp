#include "host/base/units.hpp"

#include <cstdio>

namespace galley {

std::string bytes_text(int64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t u = 0;
  while (value >= 1024 && u < 4) {
    value /= 1024;
    ++u;
  }
  char text[32];
  std::snprintf(text, sizeof text, u ? "%.2f %s" : "%.0f %s", value, units[u]);
  return text;
}

std::string count_text(double count) {
  static constexpr const char* units[] = {"", " k", " M", " G", " T", " P"};
  size_t u = 0;
  while (count >= 1000 && u < 5) {
    count /= 1000;
    ++u;
  }
  char text[32];
  std::snprintf(text, sizeof text, u ? "%.2f%s" : "%.0f%s", count, units[u]);
  return text;
}

}  // namespace galley
