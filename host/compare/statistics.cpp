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

}  // namespace

std::optional<Interval> paired_interval(std::span<const double> differences, double confidence) {
  const size_t n = differences.size();
  if (n < 2 || !std::all_of(differences.begin(), differences.end(), [](double d) { return std::isfinite(d); })) return {};
  double sum = 0, squares = 0;
  for (const double d : differences) sum += d;
  const double mean = sum / static_cast<double>(n);
  for (const double d : differences) squares += (d - mean) * (d - mean);
  const double error = std::sqrt(squares / static_cast<double>(n - 1) / static_cast<double>(n));
  return Interval{mean, reach(n, confidence) * error};
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
