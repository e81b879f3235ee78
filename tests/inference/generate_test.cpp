// How tokens are drawn: how often each comes, over random numbers that lie evenly, is its probability by the definitions of the papers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "host/tools/inference/generate.hpp"

namespace galley {
namespace {

const std::vector<float> kLogits = {0.5f, -1.0f, 2.0f, 1.25f, 2.0f, -3.0f, 0.0f};

/// Slowly: each rule sets what it drops to 0, and what is left is divided by its sum before the next.
std::vector<double> probabilities(const Draw& how, const std::set<int32_t>& text) {
  std::vector<double> p;
  for (size_t i = 0; i < kLogits.size(); ++i) {
    double x = static_cast<double>(kLogits[i]);
    if (text.contains(static_cast<int32_t>(i))) x = x < 0 ? x * how.repetition_penalty : x / how.repetition_penalty;
    p.push_back(std::exp(x / how.temperature));
  }
  const auto whole = [&] {
    const double sum = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= sum;
  };
  const auto order = [&] {
    std::vector<size_t> out(p.size());
    std::iota(out.begin(), out.end(), size_t{0});
    std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    return out;
  };
  whole();
  const std::vector<size_t> by_rank = order();
  for (size_t rank = 0; rank < p.size(); ++rank)
    if (how.top_k > 0 && rank >= static_cast<size_t>(how.top_k)) p[by_rank[rank]] = 0;
  whole();
  double before = 0;
  for (const size_t i : by_rank) {
    const double mine = p[i];
    if (before > 0 && before >= how.top_p) p[i] = 0;
    before += mine;
  }
  whole();
  const double most = *std::ranges::max_element(p);
  for (double& x : p)
    if (x < how.min_p * most) x = 0;
  whole();
  return p;
}

std::vector<double> frequencies(const Draw& how, const std::vector<int32_t>& text) {
  constexpr uint32_t kDraws = 1 << 14;
  std::vector<double> out(kLogits.size(), 0.0);
  for (uint32_t i = 0; i < kDraws; ++i) out[static_cast<size_t>(draw_token(kLogits, how, text, i << 18))] += 1.0 / kDraws;
  return out;
}

TEST(Draw, EachTokenComesAsOftenAsItsProbability) {
  Draw all;
  all.temperature = 1, all.top_k = 0;
  std::vector<Draw> ways(9, all);
  ways[1].temperature = 0.4;
  ways[2].top_k = 3;
  ways[3].top_p = 0.7;
  ways[4].min_p = 0.2;
  ways[5].repetition_penalty = 1.6;
  ways[6].top_k = 5, ways[6].top_p = 0.9, ways[6].min_p = 0.1, ways[6].temperature = 1.5, ways[6].repetition_penalty = 0.8;
  ways[7].top_p = 0;  // the likeliest stays
  ways[8].min_p = 1;  // and all that are as likely
  const std::vector<int32_t> text = {2, 5, 2};
  for (size_t w = 0; w < ways.size(); ++w) {
    const std::vector<double> found = frequencies(ways[w], text), wanted = probabilities(ways[w], {2, 5});
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 5e-4) << "way " << w << ", token " << i;
  }
}

TEST(Draw, WithoutTemperatureTheLikeliestComes) {
  Draw how;
  how.temperature = 0;
  for (const uint32_t random : {0u, 1u << 31, ~0u}) EXPECT_EQ(draw_token(kLogits, how, {}, random), 2) << "of two, the smaller id";
  how.repetition_penalty = 2;
  const std::vector<int32_t> text = {2};
  EXPECT_EQ(draw_token(kLogits, how, text, 0), 4);
}

}  // namespace
}  // namespace galley
