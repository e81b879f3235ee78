#include "host/base/units.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <map>

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

Result<int64_t> parse_bytes(const std::string& text) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' ') == std::string::npos ? unit.size() : unit.find_first_not_of(' '));
  static const std::map<std::string, double> units = {
      {"", 1},      {"B", 1},       {"KB", 1e3},      {"MB", 1e6},      {"GB", 1e9},
      {"TB", 1e12}, {"KiB", 1024},  {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1099511627776.0},
      {"K", 1024},  {"M", 1 << 20}, {"G", 1 << 30}};
  const auto it = units.find(unit);
  if (code != std::errc() || it == units.end() || !std::isfinite(number) || number <= 0 || number * it->second > 9e18)
    return recipe_error("'" + text + "' is no amount of memory", "write 24GiB, 512MiB or a number of bytes");
  return static_cast<int64_t>(number * it->second);
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

std::string time_text(int64_t seconds) {
  const auto at = static_cast<std::time_t>(seconds);
  std::tm utc = {};
  ::gmtime_r(&at, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

}  // namespace galley
