// Intervals and power beside tables, and beside experiments drawn at random: a fixed seed, so that the test is the same every time.
#include "host/tools/compare/statistics.hpp"

#include <gtest/gtest.h>

#include <boost/math/distributions/non_central_t.hpp>
#include <cmath>
#include <random>
#include <vector>

namespace galley {
namespace {

TEST(Statistics, IntervalByStudentsTable) {
  const std::vector<double> differences = {1, 2, 3, 4, 5};
  const auto interval = paired_interval(differences);
  ASSERT_TRUE(interval);
  EXPECT_DOUBLE_EQ(interval->mean, 3);
  EXPECT_NEAR(interval->half, 2.776445 * std::sqrt(2.5 / 5), 1e-6);  // t of 4 degrees of freedom at .975
  EXPECT_NEAR(paired_interval(differences, 0.99)->half, 4.604095 * std::sqrt(2.5 / 5), 1e-6);
  EXPECT_FALSE(interval->holds(1));
  EXPECT_TRUE(interval->holds(2));
}

TEST(Statistics, TooFewOrNotFinite) {
  EXPECT_FALSE(paired_interval(std::vector<double>{}));
  EXPECT_FALSE(paired_interval(std::vector<double>{1}));
  EXPECT_FALSE(paired_interval(std::vector<double>{1, 2, std::nan("")}));
  EXPECT_FALSE(paired_interval(std::vector<double>{1, 2, HUGE_VAL}));
  const auto same = paired_interval(std::vector<double>{2, 2, 2});
  ASSERT_TRUE(same);
  EXPECT_EQ(same->half, 0);
}

TEST(Statistics, PowerByItsTables) {
  // Of paired t-tests at 5 %: an effect of one standard deviation is found by 5 pairs in 40 %, by 10 in 80 %, by 13 in 91 % of all cases.
  EXPECT_NEAR(paired_power(5, 1), 0.401, 2e-3);
  EXPECT_NEAR(paired_power(10, 1), 0.803, 2e-3);
  EXPECT_NEAR(paired_power(5, 0), 0.05, 1e-9);
  EXPECT_NEAR(paired_power(5, -1), paired_power(5, 1), 1e-12);
}

/// How often an interval of n differences around `effect` leaves out 0.
double found(size_t n, double effect, std::mt19937_64& random) {
  constexpr int experiments = 20000;
  int excluded = 0;
  std::normal_distribution<double> normal(effect, 1);
  std::vector<double> differences(n);
  for (int i = 0; i < experiments; ++i) {
    for (double& d : differences) d = normal(random);
    excluded += !paired_interval(differences)->holds(0);
  }
  return static_cast<double>(excluded) / experiments;
}

TEST(Statistics, ExperimentsFindWhatTheArithmeticSays) {
  std::mt19937_64 random(20261124);
  for (const size_t n : {5, 8})
    for (const double effect : {0.0, 0.7, 1.5})
      EXPECT_NEAR(found(n, effect, random), paired_power(n, effect), 0.012) << n << ", " << effect;
}

TEST(Statistics, SequentialReachIsWhereTheEvidenceIsTwenty) {
  // The e-value as its authors write it, of a sample with this t statistic: squares of n numbers with mean m and Σ (x − m)² = 1.
  for (const size_t n : {4, 5, 8, 20, 100}) {
    const double reach = sequential_reach(n), size = static_cast<double>(n), c = 1 / (kEffect * kEffect);
    const double m = reach / std::sqrt(size * (size - 1)), sum = size * m, squares = 1 + size * m * m;
    EXPECT_NEAR(std::sqrt(c / (size + c)) * std::pow(squares / (squares - sum * sum / (size + c)), size / 2), 20, 1e-6) << n;
  }
  EXPECT_TRUE(std::isinf(sequential_reach(2)));
  EXPECT_GT(sequential_reach(5), 2.776445);
  EXPECT_GT(sequential_reach(5, 0.99), sequential_reach(5));
  const std::vector<double> differences = {1, 2, 3, 4, 5};
  EXPECT_NEAR(sequential_interval(differences)->half, sequential_reach(5) * std::sqrt(2.5 / 5), 1e-12);
  EXPECT_EQ(sequential_interval(std::vector<double>{2, 2})->half, 0);
  EXPECT_FALSE(sequential_interval(std::vector<double>{1, HUGE_VAL, 2}));
}

using Rule = std::optional<Interval> (*)(std::span<const double>, double);

/// How often a series that is looked at after each difference from the fifth to the last is stopped for leaving out 0, and after how many
/// on average it ends.
struct Series {
  double stopped = 0, length = 0;
};
Series looked_at(size_t last, double effect, std::mt19937_64& random, Rule rule = sequential_interval) {
  constexpr int experiments = 5000;
  std::normal_distribution<double> normal(effect, 1);
  Series out;
  for (int i = 0; i < experiments; ++i) {
    std::vector<double> differences;
    bool excluded = false;
    while (differences.size() < last && !excluded) {
      differences.push_back(normal(random));
      excluded = differences.size() >= kFewestPairs && !rule(differences, 0.95)->holds(0);
    }
    out.stopped += excluded;
    out.length += static_cast<double>(differences.size());
  }
  return {out.stopped / experiments, out.length / experiments};
}

/// How often a t statistic of n differences is beyond a bound: from the noncentral t distribution, of which paired_power() is a case.
double beyond(size_t n, double bound, double effect) {
  const boost::math::non_central_t t(static_cast<double>(n - 1), effect * std::sqrt(static_cast<double>(n)));
  return boost::math::cdf(boost::math::complement(t, bound)) + boost::math::cdf(t, -bound);
}

TEST(Statistics, LooksBehindEverySeedKeepTheError) {
  std::mt19937_64 random(20261125);
  // Student's intervals are for one look.
  EXPECT_GT(looked_at(50, 0, random, paired_interval).stopped, 0.2);
  EXPECT_LT(looked_at(50, 0, random).stopped, 0.05);
  EXPECT_LT(looked_at(10, 0, random).stopped, 0.05);
  // One look: as often as the arithmetic says. More looks: at least as often as the last one alone, and at most as all of them together.
  for (const double effect : {1.0, 2.0, 4.0}) {
    EXPECT_NEAR(looked_at(5, effect, random).stopped, beyond(5, sequential_reach(5), effect), 0.02) << effect;
    const Series ten = looked_at(10, effect, random);
    double sum = 0;
    for (size_t n = 5; n <= 10; ++n) sum += beyond(n, sequential_reach(n), effect);
    EXPECT_GT(ten.stopped, beyond(10, sequential_reach(10), effect) - 0.015) << effect;
    EXPECT_LT(ten.stopped, std::min(1.0, sum) + 0.015) << effect;
  }
  // A difference of four deviations takes hardly more than the least seeds.
  const Series clear = looked_at(20, 4, random);
  EXPECT_GT(clear.stopped, 0.999);
  EXPECT_LT(clear.length, 6);
}

/// How often decide() says a word of n differences that are normal around `effect` with deviation 1.
double said(Decision::Word word, size_t n, double effect, double margin, std::mt19937_64& random) {
  constexpr int experiments = 1500;
  std::normal_distribution<double> normal(effect, 1);
  int count = 0;
  for (int i = 0; i < experiments; ++i) {
    std::vector<double> differences(n);
    for (double& d : differences) d = normal(random);
    count += decide(differences, margin).word == word;
  }
  return static_cast<double>(count) / experiments;
}

TEST(Statistics, DecisionsKeepTheirErrors) {
  std::mt19937_64 random(20261126);
  using Word = Decision::Word;
  // At the margin itself, "the same" is wrong in at most one case of twenty; without a difference, "better" is, too.
  for (const size_t n : {5, 20}) EXPECT_LT(said(Word::Same, n, 1.5, 1.5, random), 0.07) << n;
  EXPECT_LT(said(Word::Better, 5, 0, 0.1, random), 0.045);
  EXPECT_GT(said(Word::Worse, 8, 3, 0.1, random), 0.99);
  EXPECT_EQ(said(Word::Better, 8, 3, 0.1, random), 0);
}

TEST(Statistics, SoManyPairsAreNeeded) {
  std::mt19937_64 random(20261127);
  for (const double margin : {1.0, 0.7}) {
    const size_t n = pairs_needed(1, margin);
    EXPECT_NEAR(said(Decision::Word::Same, n, 0, margin, random), 0.8, 0.06) << margin << ": " << n;
    EXPECT_GT(paired_power(n, margin), 0.7) << margin;
    EXPECT_GT(pairs_needed(1, margin, Looks::AfterEach), n);
  }
  EXPECT_EQ(pairs_needed(1, 0), 0);
  EXPECT_EQ(pairs_needed(1, 1e-6), 0);
  EXPECT_EQ(pairs_needed(0, 1), 2);
}

TEST(Statistics, Outlier) {
  EXPECT_EQ(outlier(std::vector<double>{-0.24, -0.32, 1.21, -0.20, -0.35}), 2);
  EXPECT_FALSE(outlier(std::vector<double>{-0.24, -0.32, -0.1, -0.20, -0.35}));
  EXPECT_FALSE(outlier(std::vector<double>{0, 0, 9}));
  EXPECT_FALSE(outlier(std::vector<double>{1, 1, 1, 1, 1}));
  EXPECT_EQ(outlier(std::vector<double>{1, 1, 1, 1, 1.5}), 4);
  // Of normal differences one of a hundred series has one.
  std::mt19937_64 random(20261128);
  std::normal_distribution<double> normal(0, 1);
  int found = 0;
  for (int i = 0; i < 10000; ++i) {
    std::vector<double> differences(8);
    for (double& d : differences) d = normal(random);
    found += outlier(differences).has_value();
  }
  EXPECT_NEAR(found, 100, 35);
}

TEST(Statistics, Median) {
  EXPECT_FALSE(median(std::vector<double>{}));
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{5, 1, 3}), 3);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
}

}  // namespace
}  // namespace galley
