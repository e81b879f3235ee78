// What forward leaves for backward, and what a strategy that decides over it is told.
#include "host/plan/plan.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

/// a = x·w0 · b = a·w1 · s = b + b · z = s·w2: backward reads a, s and z (the loss's own), and never b.
class Decide : public Hand {
 protected:
  Decide() {
    galley_tensor w[3];
    for (size_t i = 0; i < 3; ++i) w[i] = parameter("w" + std::to_string(i), {64});
    const galley_tensor b = node("b", "mul", {node("a", "mul", {input("x", {64}), w[0]}), w[1]});
    const galley_tensor z = node("z", "mul", {node("s", "add", {b, b}), w[2]});
    node("l", "loss", {z}, Section::Forward, {*graph.scalar(GALLEY_SCALAR_LOSS)});
    train({w[0], w[1], w[2]});
  }
  std::string decided() {
    testing::internal::CaptureStderr();
    const std::string wrong = run({differentiate, order, place, bind, decide});
    said_ = testing::internal::GetCapturedStderr();
    return wrong;
  }
  /// What the plugin should have been told.
  std::string planned() {
    EXPECT_EQ(run({clone, alias}), "");
    return "peaks: " + std::to_string(make_plan(c->program, target).classes[0].planned) + "\n";
  }
  std::vector<std::string> saved() const {
    std::vector<std::string> out;
    for (const galley_saved_item& s : c->saved.items) out.emplace_back(s.name);
    return out;
  }
  std::string said_;
};

TEST_F(Decide, WithoutAStrategyAllIsKept) {
  ASSERT_EQ(decided(), "");
  EXPECT_EQ(saved(), (std::vector<std::string>{"a", "s", "z"}));
  EXPECT_EQ(c->choices, (std::vector<uint32_t>(3, GALLEY_KEEP)));
}

TEST_F(Decide, EachSavedTensorHasItsPrice) {
  ASSERT_EQ(decided(), "");
  const auto& items = c->saved.items;
  ASSERT_EQ(items.size(), 3u);
  for (const galley_saved_item& s : items) EXPECT_EQ(s.bytes, 256) << s.name;
  EXPECT_EQ(items[0].n_parents, 0u) << "a is made from inputs and weights";
  ASSERT_EQ(items[1].n_parents, 1u);
  EXPECT_EQ(items[1].parents[0], 0u) << "s is made from a, through b";
  ASSERT_EQ(items[2].n_parents, 1u);
  EXPECT_EQ(items[2].parents[0], 1u);
  EXPECT_DOUBLE_EQ(items[1].recompute_seconds, 2 * items[0].recompute_seconds) << "two nodes of one price";
}

TEST_F(Decide, ThePeakThatIsAnsweredIsThePlansIfAllIsKept) {
  use("peaks", {{"share", 0.0}});
  ASSERT_EQ(decided(), "");
  EXPECT_EQ(c->choices, (std::vector<uint32_t>(3, GALLEY_KEEP)));
  EXPECT_EQ(said_, planned());
}

TEST_F(Decide, ThePeakThatIsAnsweredIsThePlansIfAllIsMadeAgain) {
  use("peaks", {{"share", 1.0}});
  ASSERT_EQ(decided(), "");
  EXPECT_EQ(c->choices, (std::vector<uint32_t>(3, GALLEY_RECOMPUTE)));
  EXPECT_EQ(said_, planned());
}

TEST_F(Decide, PeaksAreOfMemoryClassesThatThereAre) {
  use("peaks", {{"memory", int64_t{2}}});
  EXPECT_NE(decided().find("device 'hand' has no memory class 2"), std::string::npos);
}

TEST_F(Decide, WhatADeviceCannotDoIsNoChoice) {
  use("peaks", {{"choice", int64_t{7}}});
  EXPECT_EQ(decided(), "peaks (hand.lua:3): device 'hand' keeps or recomputes saved tensors; choice 7 for 'a' is not among them");
}

TEST_F(Decide, OneStrategyDecides) {
  use("peaks", {{"share", 0.0}});
  use("peaks", {{"share", 0.0}});
  EXPECT_EQ(decided(), "two strategies decide what backward keeps: peaks (hand.lua:3) and peaks (hand.lua:4)");
}

}  // namespace
}  // namespace galley::hand
