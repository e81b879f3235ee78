// Dropout's masks: a known one, how many elements they drop, and that neither the batch nor chunks nor the way back change them.
#include <gtest/gtest.h>

#include <cmath>

#include "host/proofs/gradients.hpp"
#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

class Dropout : public testing::Test {
 protected:
  // B sequences of S positions of C columns; rows of the window from `first` on.
  Problem problem(int64_t B, int64_t S, int64_t C, int64_t first = 0) {
    Problem p;
    p.op = models().op("dropout");
    p.name = "h.0.drop";
    p.inputs = {Tensor{GALLEY_F32, {B, S, C}, std::vector<double>(static_cast<size_t>(B * S * C), 1.0)},
                Tensor{GALLEY_I64, {4}, {1234, 5, static_cast<double>(first), 0}}};
    p.attrs = attrs;
    p.n_attrs = 1;
    p.flags = GALLEY_NODE_TRAINING;
    p.length = S;
    p.infer();
    return p;
  }
  std::vector<double> run(const Problem& p, const Level& level) {
    set_threads(2);
    const Execution r = execute(level.kernel("dropout"), level.isa, p);
    EXPECT_EQ(r.status, GALLEY_OK) << r.text;
    return unpack(r.outputs[0].data(), GALLEY_F32, p.outputs[0]->count());
  }
  double rate = 0.3;
  const galley_attr attr = {sizeof(galley_attr), 1, "p", &rate, GALLEY_ATTR_F64, 1, 0};
  const galley_attr* const attrs[1] = {&attr};
};

// Written down from a second implementation of Philox and of the key: seed 1234, window 5, node "h.0.drop", rows 3 and 4 of the window, 2
// · 3 positions.
TEST_F(Dropout, DrawsAKnownMask) {
  const std::string expected =
      "#...######"
      "#..##....#"
      ".###.##.#."
      "####.###.#";
  Problem p = problem(2, 3, 10, 3);
  run_reference(p);
  for (const Level& level : models().levels) {
    const std::vector<double> y = run(p, level);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(y[i], expected[i] == '#' ? static_cast<double>(static_cast<float>(1 / 0.7)) : 0.0) << i << " at " << level.isa;
      EXPECT_EQ(p.outputs[0]->values[i] != 0, expected[i] == '#') << i;
    }
  }
}

TEST_F(Dropout, DropsTheShareThatItIsTold) {
  for (const double p : {0.0, 0.1, 0.5, 0.9, 1.0}) {
    rate = p;
    constexpr int64_t n = int64_t{4} * 100 * 777;
    const std::vector<double> y = run(problem(4, 100, 777), models().levels.back());
    int64_t dropped = 0;
    double sum = 0;
    for (const double v : y) {
      dropped += v == 0;
      sum += v;
    }
    const double deviation = std::sqrt(p * (1 - p) / static_cast<double>(n));
    EXPECT_NEAR(static_cast<double>(dropped) / static_cast<double>(n), p, 5 * deviation);
    if (p < 1) {
      EXPECT_NEAR(sum / static_cast<double>(n), 1, 5 * deviation / (1 - p) + 1e-6);
    }
  }
}

TEST_F(Dropout, IsTheSameForABatchOfEightAndEightOfOne) {
  const int64_t S = 7, C = 130;
  for (const Level& level : models().levels) {
    const std::vector<double> whole = run(problem(8, S, C), level);
    for (int64_t b = 0; b < 8; ++b) {
      const std::vector<double> one = run(problem(1, S, C, b), level);
      EXPECT_TRUE(std::equal(one.begin(), one.end(), whole.begin() + b * S * C)) << "sequence " << b << " at " << level.isa;
    }
    EXPECT_FALSE(std::equal(whole.begin(), whole.begin() + S * C, whole.begin() + S * C)) << "two sequences have one mask";
  }
}

TEST_F(Dropout, ChangesWithSeedWindowAndName) {
  const Level& level = models().levels.back();
  const std::vector<double> mask = run(problem(1, 5, 64), level);
  Problem other = problem(1, 5, 64);
  other.inputs[1]->values[0] += 1;
  EXPECT_NE(run(other, level), mask);
  other = problem(1, 5, 64);
  other.inputs[1]->values[1] += 1;
  EXPECT_NE(run(other, level), mask);
  other = problem(1, 5, 64);
  other.name = "h.1.drop";
  EXPECT_NE(run(other, level), mask);
}

TEST_F(Dropout, RepeatsItsMaskOnTheWayBack) {
  std::mt19937_64 random;
  LoneNode node;
  node.op = models().op("dropout");
  node.name = "h.0.drop";
  node.attrs.set("p", rate);
  node.flags = GALLEY_NODE_TRAINING;
  node.length = 5;
  Numbers x = Numbers::of(GALLEY_F32, {2, 5, 33}), keys = Numbers::of(GALLEY_I64, {4});
  std::fill(x.floats.begin(), x.floats.end(), 1.0);
  keys.set({1234, 5, 6, 0});
  node.inputs = {x, keys};
  const OpLookup ops = [](std::string_view name) { return models().op(std::string(name)); };
  const Result<Values> y = outputs_of(node, ops);
  ASSERT_TRUE(y) << y.error().cause;
  const Result<Values> dx = gradients_by_rule(node, *y, {x}, 1, {1, 0}, Given::Nothing, ops, random);
  ASSERT_TRUE(dx) << dx.error().cause;
  EXPECT_EQ((*dx)[0]->floats, (*y)[0]->floats);
}

}  // namespace
}  // namespace galley::test
