#include "host/compare/statistics.hpp"

#include <algorithm>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <vector>

namespace galley {
namespace {

/// How many standard errors the interval reaches to either side.
double reach(size_t n, double confidence) {
  return boost::math::quantile(boost::math::students_t(static_cast<double>(n - 1)), 0.5 + confidence / 2);
}

/// The mean, and as half of an interval its standard error.
std::optional<Interval> mean_and_error(std::span<const double> differences) {
  const size_t n = differences.size();
  if (n < 2 || !std::all_of(differences.begin(), differences.end(), [](double d) { return std::isfinite(d); })) return {};
  double sum = 0, squares = 0;
  for (const double d : differences) sum += d;
  const double mean = sum / static_cast<double>(n);
  for (const double d : differences) squares += (d - mean) * (d - mean);
  return Interval{mean, std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n))};
}

}  // namespace

std::optional<Interval> paired_interval(std::span<const double> differences, double confidence) {
  auto out = mean_and_error(differences);
  if (out) out->half *= reach(differences.size(), confidence);
  return out;
}

double sequential_reach(size_t n, double confidence) {
  // The e-value of the mean's distance r from 0, with D = Σ (d − mean)² and c = 1 / kEffect²:
  //   √(c / (n + c)) · ((D + n r²) / (D + n r² c / (n + c)))^(n/2)
  // It is 1 / (1 − confidence) at r² = D (b − 1) / (n (1 − b c / (n + c))), b being the power 2/n of √((n + c) / c) / (1 − confidence).
  const auto count = static_cast<double>(n);
  const double c = 1 / (kEffect * kEffect), share = c / (count + c);
  const double b = std::pow(1 / std::sqrt(share) / (1 - confidence), 2 / count);
  return b * share < 1 ? std::sqrt((count - 1) * (b - 1) / (1 - b * share)) : HUGE_VAL;
}

std::optional<Interval> sequential_interval(std::span<const double> differences, double confidence) {
  auto out = mean_and_error(differences);
  if (out && out->half > 0) out->half *= sequential_reach(differences.size(), confidence);
  return out;
}

double paired_power(size_t n, double effect, double confidence) {
  if (n < 2) return 0;
  const double critical = reach(n, confidence);
  const boost::math::non_central_t t(static_cast<double>(n - 1), std::abs(effect) * std::sqrt(static_cast<double>(n)));
  return boost::math::cdf(boost::math::complement(t, critical)) + boost::math::cdf(t, -critical);
}

std::optional<double> median(std::span<const double> values) {
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  if (sorted.size() % 2) return *middle;
  return (*std::max_element(sorted.begin(), middle) + *middle) / 2;
}

}  // namespace galley
