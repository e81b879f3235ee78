#include "host/tools/inference/generate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <vector>

namespace galley {
namespace {

/// How often each token is drawn when the random bits go through their range evenly.
std::map<int32_t, double> shares(const std::vector<float>& logits, const Draw& how) {
  constexpr int kDraws = 4096;
  std::map<int32_t, double> out;
  for (int i = 0; i < kDraws; ++i) out[draw_token(logits, how, static_cast<uint32_t>(i) << 20)] += 1.0 / kDraws;
  return out;
}

const std::vector<float> kLogits = {0, 2, 1, 2, -1};

TEST(DrawToken, TheLikeliestAtTemperatureZero) {
  EXPECT_EQ(shares(kLogits, {0, 0, 1, 1}), (std::map<int32_t, double>{{1, 1.0}}));  // of equal ones the smaller id
}

TEST(DrawToken, ByTheirProbabilities) {
  for (const double temperature : {0.5, 1.0, 3.0}) {
    double sum = 0;
    for (const float logit : kLogits) sum += std::exp(logit / temperature);
    const auto drawn = shares(kLogits, {temperature, 0, 1, 1});
    for (size_t t = 0; t < kLogits.size(); ++t)
      EXPECT_NEAR(drawn.at(static_cast<int32_t>(t)), std::exp(kLogits[t] / temperature) / sum, 1e-3) << temperature;
  }
}

TEST(DrawToken, TopK) {
  const auto drawn = shares(kLogits, {1, 3, 1, 1});
  EXPECT_EQ(drawn.size(), 3u);
  const double sum = 2 * std::exp(2.0) + std::exp(1.0);
  EXPECT_NEAR(drawn.at(2), std::exp(1.0) / sum, 1e-3);
  EXPECT_EQ(shares(kLogits, {1, 100, 1, 1}).size(), 5u);
}

TEST(DrawToken, TopPIsTheFewestThatReachIt) {
  // Probabilities: 0.39 0.39 0.144 0.053 0.0195.
  EXPECT_EQ(shares(kLogits, {1, 0, 0.3, 1}).size(), 1u);
  EXPECT_EQ(shares(kLogits, {1, 0, 0.5, 1}).size(), 2u);
  EXPECT_EQ(shares(kLogits, {1, 0, 0.8, 1}).size(), 3u);
  EXPECT_EQ(shares(kLogits, {1, 0, 0, 1}).size(), 1u);
  EXPECT_NEAR(shares(kLogits, {1, 0, 0.5, 1}).at(3), 0.5, 1e-3);
  // Among the top k, their probabilities count anew.
  EXPECT_EQ(shares(kLogits, {1, 2, 0.5, 1}).size(), 1u);
}

}  // namespace
}  // namespace galley
