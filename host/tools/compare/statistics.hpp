// Computes what the differences of paired measurements say. Everything here is [thread-safe].
#pragma once

#include <cstddef>
#include <cstdint>
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

/// The mean and an interval that may be looked at after every difference: in at most 1 − confidence of all series does any of the intervals
/// of 2, 3, 4, … differences leave out the true mean, however many there will be and whenever one stops. So a series may end as soon as
/// its interval leaves out 0. It is wider than paired_interval(); infinitely so of the first few.
///
/// A confidence sequence of a normal mean with unknown deviation: the numbers for which the e-value of the t statistic, with the effect μ/σ
/// drawn from N(0, kEffect²) and the deviation from its right Haar measure, stays below 1 / (1 − confidence). Under the null that e-value
/// is a martingale that begins with 1, so that Ville's inequality bounds the error over all looks. Lai, "On Confidence Sequences", Annals
/// of Statistics 4, 1976; Pérez-Ortiz, Lardy, de Heide, Grünwald, "E-Statistics, Group Invariance and Anytime Valid Testing", 2022,
/// arXiv:2208.07610; Wang, Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance", 2023,
/// arXiv:2310.03722. Nothing where paired_interval() has nothing.
std::optional<Interval> sequential_interval(std::span<const double> differences, double confidence = 0.95);
/// Effects of this size, in standard deviations of the differences, are found soonest. Over 5 to 50 differences, 2 is within 12 % of the
/// narrowest interval that any size gives.
inline constexpr double kEffect = 2;
/// How many standard errors of the mean sequential_interval() of n differences reaches to either side; may be infinite.
double sequential_reach(size_t n, double confidence = 0.95);

/// Whether a mean difference matters.
struct Decision {
  enum class Word : uint8_t { None, Same, Better, Worse, Undecided };
  Word word = Word::None;            ///< None: there is no interval
  std::optional<Interval> interval;  ///< of the mean, at 95 %
  bool apart = false;                ///< it leaves out 0: there is a difference, however small
  double within = 0;                 ///< Same: at 95 % confidence the mean is no further from 0
  size_t pairs = 0;                  ///< Undecided: about how many pairs would be needed; 0: no number would do
};
enum class Looks : uint8_t { Once, AfterEach };
/// What differences of losses, of which lower ones are better, say beside a margin >= 0 that matters. Same: two one-sided t-tests at 5 %
/// each find the mean above −margin and below margin, which is so where the interval at 90 % lies between them (Schuirmann, "A Comparison
/// of the Two One-Sided Tests Procedure and the Power Approach", Journal of Pharmacokinetics and Biopharmaceutics 15, 1987). Else Better or
/// Worse: the interval at 95 % leaves out 0. Else Undecided. With Looks::AfterEach, sequential_interval() at 95 % stands for both.
Decision decide(std::span<const double> differences, double margin, Looks looks = Looks::Once);
/// About how many pairs, whose differences have this standard deviation, find a mean of 0 the same within `margin` in four of five
/// comparisons; they also find a difference of the margin's size about so often. At least 2; 0: more than ten million.
size_t pairs_needed(double deviation, double margin, Looks looks = Looks::Once);
/// The one difference that is not like the others: Grubbs' test at 1 %, which takes them for normal (Grubbs, "Sample Criteria for Testing
/// Outlying Observations", Annals of Mathematical Statistics 21, 1950). Nothing of fewer than four, or where one is not finite.
std::optional<size_t> outlier(std::span<const double> differences);

/// How often a paired t-test of n pairs at 1 − confidence finds a difference of `effect` standard deviations of the differences: its
/// power, from the noncentral t distribution.
double paired_power(size_t n, double effect, double confidence = 0.95);

/// The middle one, or the mean of the two in the middle; nothing of none.
std::optional<double> median(std::span<const double> values);

}  // namespace galley
