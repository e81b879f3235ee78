#include "host/tools/compare/statistics.hpp"

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

Decision decide(std::span<const double> differences, double margin, Looks looks) {
  Decision out;
  const bool often = looks == Looks::AfterEach;
  out.interval = often ? sequential_interval(differences) : paired_interval(differences);
  if (!out.interval) return out;
  out.apart = !out.interval->holds(0);
  const Interval both = often ? *out.interval : *paired_interval(differences, 0.9);
  out.within = std::max(std::fabs(both.low()), std::fabs(both.high()));
  if (out.within <= margin) out.word = Decision::Word::Same;
  else if (out.apart) out.word = out.interval->mean < 0 ? Decision::Word::Better : Decision::Word::Worse;
  else out.word = Decision::Word::Undecided;
  if (out.word != Decision::Word::Undecided) return out;
  const size_t n = differences.size();
  const size_t pairs = pairs_needed(mean_and_error(differences)->half * std::sqrt(static_cast<double>(n)), margin, looks);
  out.pairs = pairs == 0 ? 0 : std::max(pairs, n + 1);
  return out;
}

size_t pairs_needed(double deviation, double margin, Looks looks) {
  constexpr size_t most = 10'000'000;
  const auto enough = [&](size_t n) {
    // A mean of 0 is seen within so many standard errors in four of five cases, and the interval reaches on from there.
    const double seen = reach(n, 0.8), further = looks == Looks::AfterEach ? sequential_reach(n) : reach(n, 0.9);
    return (seen + further) * deviation <= margin * std::sqrt(static_cast<double>(n));
  };
  if (!(margin > 0) || !enough(most)) return 0;
  size_t least = 2, last = most;
  while (least < last) {
    const size_t middle = least + (last - least) / 2;
    if (enough(middle)) last = middle;
    else least = middle + 1;
  }
  return least;
}

std::optional<size_t> outlier(std::span<const double> differences) {
  const auto spread = mean_and_error(differences);
  const size_t n = differences.size();
  if (n < 4 || !spread || !(spread->half > 0)) return {};
  const auto size = static_cast<double>(n);
  const boost::math::students_t t(size - 2);
  const double bound = boost::math::quantile(boost::math::complement(t, 0.01 / (2 * size)));
  const double critical = (size - 1) / std::sqrt(size) * std::sqrt(bound * bound / (size - 2 + bound * bound));
  const auto furthest = std::max_element(differences.begin(), differences.end(),
                                         [&](double a, double b) { return std::fabs(a - spread->mean) < std::fabs(b - spread->mean); });
  if (std::fabs(*furthest - spread->mean) <= critical * spread->half * std::sqrt(size)) return {};
  return static_cast<size_t>(furthest - differences.begin());
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
