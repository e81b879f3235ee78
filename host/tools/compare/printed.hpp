// Formats numbers and text for reports.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace galley {

/// Returns what printf would print, at most 400 bytes.
template <class... A>
std::string printed(const char* format, A... values) {
  char text[400];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// Returns a number with so many significant digits, as pages write it too (report/page/format.js): "0.0214", "7.08e-6".
inline std::string number_text(double value, int digits = 3) {
  const double size = std::fabs(value);
  if (!std::isfinite(value)) return printed("%g", value);
  if (size == 0) return "0";
  if (size >= 1e-4 && size < 1e7) return printed("%.*f", std::max(0, digits - 1 - static_cast<int>(std::floor(std::log10(size)))), value);
  std::string out = printed("%.*e", digits - 1, value);
  const size_t e = out.find('e');
  return out.substr(0, e + 1) + std::to_string(std::atoi(out.c_str() + e + 1));
}

/// Returns "0.021 ± 0.034": both to the second digit of the half, as number_text() writes them.
inline std::string with_half_text(double value, double half) {
  if (!(half > 0) || !std::isfinite(half) || !std::isfinite(value)) return number_text(value) + " ± " + number_text(half, 2);
  const int last = static_cast<int>(std::floor(std::log10(half))) - 1;  // the decimal that is the last one
  if (value == 0) return "0 ± " + number_text(half, 2);
  const int first = static_cast<int>(std::floor(std::log10(std::fabs(value))));
  return (first < last - 1 ? "0" : number_text(value, std::max(1, first - last + 1))) + " ± " + number_text(half, 2);
}

}  // namespace galley
