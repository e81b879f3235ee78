// What the differences of paired measurements say. Everything here is [thread-safe].
#pragma once

#include <optional>
#include <span>

namespace galley {

/// A mean and the half of its interval: mean ± half.
struct Interval {
  double mean = 0, half = 0;
  double low() const { return mean - half; }
  double high() const { return mean + half; }
  bool holds(double value) const { return low() <= value && value <= high(); }
};

/// From fewer differences than these there is no verdict: the interval of so few rests on the assumption that they are normal.
inline constexpr size_t kFewestPairs = 5;

/// The mean of differences between pairs, and its interval at this confidence by Student's t with n − 1 degrees of freedom (Student,
/// "The Probable Error of a Mean", Biometrika 6, 1908; a paired t-test at 1 − confidence asks whether the interval holds 0). Nothing of
/// fewer than two, or where one is not finite. Differences that are all the same have an interval of width 0.
std::optional<Interval> paired_interval(std::span<const double> differences, double confidence = 0.95);

/// How often a paired t-test of n pairs at 1 − confidence finds a difference of `effect` standard deviations of the differences: its
/// power, from the noncentral t distribution.
double paired_power(size_t n, double effect, double confidence = 0.95);

/// The middle one, or the mean of the two in the middle; nothing of none.
std::optional<double> median(std::span<const double> values);

}  // namespace galley
