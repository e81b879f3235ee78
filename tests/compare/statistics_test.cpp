// Intervals and power beside tables, and beside experiments drawn at random: a fixed seed, so that the test is the same every time.
#include "host/compare/statistics.hpp"

#include <gtest/gtest.h>

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

TEST(Statistics, Median) {
  EXPECT_FALSE(median(std::vector<double>{}));
  EXPECT_EQ(median(std::vector<double>{3}), 3);
  EXPECT_EQ(median(std::vector<double>{5, 1, 3}), 3);
  EXPECT_EQ(median(std::vector<double>{4, 1, 3, 2}), 2.5);
}

}  // namespace
}  // namespace galley
