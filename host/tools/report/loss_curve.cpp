#include "host/tools/report/loss_curve.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "host/tools/report/columns.hpp"

namespace galley {
namespace {

constexpr size_t kCurveRows = 6;
constexpr size_t kCurveLabel = 10;  // "  5.5413  "
constexpr size_t kCurveMost = 64, kCurveLeast = 16;

std::string digits_of(double value, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string braille_character(uint32_t c) {
  return {static_cast<char>(0xE0 | c >> 12), static_cast<char>(0x80 | (c >> 6 & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
}

/// A grid of dots, row 0 at the top.
struct Dots {
  size_t width, height;
  std::vector<bool> set = std::vector<bool>(width * height, false);
  bool at(size_t x, size_t y) const { return set[y * width + x]; }
  void column(size_t x, size_t from, size_t to) {
    for (size_t y = std::min(from, to); y <= std::max(from, to); ++y) set[y * width + x] = true;
  }
};

/// The value in each of `width` places: the mean of the steps in it, or between its neighbours where there are none.
std::vector<double> places(const std::vector<std::pair<double, double>>& points, size_t width) {
  const double first = points.front().first, last = points.back().first;
  std::vector<double> sum(width, 0), count(width, 0);
  for (const auto& [step, loss] : points) {
    const double share = last > first ? (step - first) / (last - first) : 0;
    const auto x = static_cast<size_t>(std::lround(share * static_cast<double>(width - 1)));
    sum[x] += loss;
    ++count[x];
  }
  std::vector<double> out(width);
  size_t before = 0;  // the last place with a value: place 0 has one
  for (size_t x = 0; x < width; ++x) {
    if (count[x] == 0) continue;
    out[x] = sum[x] / count[x];
    for (size_t k = before + 1; k < x; ++k)
      out[k] = out[before] + (out[x] - out[before]) * static_cast<double>(k - before) / static_cast<double>(x - before);
    before = x;
  }
  return out;
}

/// A row of characters: of Braille each has two dots across and four up.
std::string row_text(const Dots& dots, size_t row, Characters characters) {
  std::string out;
  if (characters == Characters::Ascii) {
    for (size_t x = 0; x < dots.width; ++x) out += dots.at(x, row) ? '*' : ' ';
  } else {
    constexpr uint32_t bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    for (size_t x = 0; x < dots.width; x += 2) {
      uint32_t bits = 0;
      for (size_t dy = 0; dy < 4; ++dy)
        for (size_t dx = 0; dx < 2; ++dx)
          if (dots.at(x + dx, 4 * row + dy)) bits |= bit[dy][dx];
      out += bits ? braille_character(0x2800 + bits) : " ";
    }
  }
  return out.substr(0, out.find_last_not_of(' ') + 1);
}

}  // namespace

std::string loss_curve(const std::vector<double>& steps, const std::vector<double>& losses, const char* unit, int columns,
                       Characters characters) {
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < std::min(steps.size(), losses.size()); ++i)
    if (std::isfinite(losses[i])) points.emplace_back(steps[i], losses[i]);
  if (points.size() < kLeastCurve || columns < static_cast<int>(kCurveLabel + kCurveLeast)) return "";
  const size_t cells = std::min(static_cast<size_t>(columns) - kCurveLabel, kCurveMost);
  const bool braille = characters == Characters::Braille;
  Dots dots{cells * (braille ? 2 : 1), kCurveRows * (braille ? 4 : 1)};
  const std::vector<double> values = places(points, dots.width);
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double range = std::max(*high - *low, 1e-12);
  const auto height_of = [&](double value) {
    return static_cast<size_t>(std::lround((*high - value) / range * static_cast<double>(dots.height - 1)));
  };
  for (size_t x = 0; x < dots.width; ++x) {
    const size_t y = height_of(values[x]), before = x ? height_of(values[x - 1]) : y;
    // From where the place before is, so that steep parts have no gaps.
    dots.column(x, y, before < y ? before + 1 : before > y ? before - 1 : y);
  }
  std::string out = std::string("training loss, ") + unit + "; last " + digits_of(points.back().second, "%.4f") + "\n";
  for (size_t row = 0; row < kCurveRows; ++row) {
    const std::string label = row == 0 ? digits_of(*high, "%.4f") : row == kCurveRows - 1 ? digits_of(*low, "%.4f") : "";
    std::string line = right_in(label, kCurveLabel - 2) + "  " + row_text(dots, row, characters);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  const std::string from = "step " + digits_of(points.front().first, "%.0f"), to = digits_of(points.back().first, "%.0f");
  const size_t gap = cells > from.size() + to.size() ? cells - from.size() - to.size() : 1;
  return out + std::string(kCurveLabel, ' ') + from + std::string(gap, ' ') + to + "\n";
}

}  // namespace galley
