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
    node("l", "loss", {z}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
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
  EXPECT_EQ(decided(), "peaks (hand.lua:3): choice 7 for 'a' is none of galley/saved.h");
}

TEST_F(Decide, SeveralDecideOnWhatThoseBeforeThemKeep) {
  use("peaks", {{"share", 0.0}});
  use("peaks", {{"share", 1.0}});
  ASSERT_EQ(decided(), "");
  EXPECT_EQ(c->choices, (std::vector<uint32_t>(3, GALLEY_RECOMPUTE)));
}

TEST_F(Decide, WhatAnotherHasChosenStays) {
  use("peaks", {{"share", 1.0}});
  use("peaks", {{"share", 0.0}});
  EXPECT_EQ(decided(), "peaks (hand.lua:4) chooses 'keep' for 'a', for which peaks (hand.lua:3) has chosen 'recompute once'");
}

TEST_F(Decide, WhoHoldsABudgetChoosesForAll) {
  use("peaks", {{"budget", int64_t{1} << 20}});
  use("peaks", {{"share", 1.0}, {"each", 1.0}});
  use("peaks", {{"share", 1.0}});
  use("peaks", {{"share", 0.0}});
  ASSERT_EQ(decided(), "");
  EXPECT_EQ(c->choices, (std::vector<uint32_t>(3, GALLEY_RECOMPUTE_EACH)));
  for (const char* name : {"a", "s", "z"})
    EXPECT_NE(said_.find("accepted for " + std::string(name) + ": 3 1\n"), std::string::npos) << said_;
  EXPECT_EQ(c->budget, int64_t{1} << 20);
}

TEST_F(Decide, OneStrategyHoldsABudget) {
  use("peaks", {{"budget", int64_t{1} << 20}});
  use("peaks", {{"budget", int64_t{1} << 21}});
  EXPECT_EQ(decided(), "two strategies hold a budget for what backward keeps: peaks (hand.lua:3) and peaks (hand.lua:4)");
}

TEST_F(Decide, SavedTensorsGoWhereNothingComputes) {
  target.memories = {{"host"}, {"slow"}, {"fast"}, {"other"}};
  for (const size_t m : {1u, 2u}) target.memories[m].computes = false;
  target.memories[1].in_bandwidth = 2;
  target.memories[1].out_bandwidth = 4;
  target.memories[2].in_bandwidth = target.memories[2].out_bandwidth = 256;
  ASSERT_EQ(decided(), "");
  const galley_saved_item& item = c->saved.items[0];
  EXPECT_TRUE(item.flags & GALLEY_SAVED_OFFLOADABLE);
  ASSERT_EQ(item.n_memories, 4u);
  EXPECT_EQ(std::vector<double>(item.offload_seconds_to, item.offload_seconds_to + 4), (std::vector<double>{0, 192, 2, 0}));
}

TEST_F(Decide, NothingGoesWhereKernelsCompute) {
  use("peaks", {{"choice", int64_t{GALLEY_OFFLOAD_TO(1)}}});
  EXPECT_EQ(decided(), "peaks (hand.lua:3): device 'hand' cannot offload 'a' to memory class 'spill', which computes");
  EXPECT_FALSE(c->saved.items[0].flags & GALLEY_SAVED_OFFLOADABLE);
}

TEST_F(Decide, SavedTensorsGoToMemoryClassesThatThereAre) {
  use("peaks", {{"choice", int64_t{GALLEY_OFFLOAD_TO(2)}}});
  EXPECT_EQ(decided(), "peaks (hand.lua:3): device 'hand' has no memory class 2 to offload 'a' to");
}

TEST_F(Decide, ThePeaksThatAreAnsweredAreThePlansIfAllIsOffloaded) {
  target.memories[1].computes = false;
  use("peaks", {{"share", 1.0}, {"offload", 1.0}});
  ASSERT_EQ(decided(), "");
  EXPECT_EQ(c->choices, (std::vector<uint32_t>(3, GALLEY_OFFLOAD_TO(1))));
  EXPECT_EQ(said_, planned());
}

TEST_F(Decide, WhatEntersABlockIsOfferedAlsoIfBackwardDoesNotReadIt) {
  graph.tensor(graph.find("b")).flags |= GALLEY_TENSOR_BLOCK_INPUT;
  ASSERT_EQ(decided(), "");
  EXPECT_EQ(saved(), (std::vector<std::string>{"a", "b", "s", "z"}));
  EXPECT_EQ(c->saved.items[2].parents[0], 1u) << "s is made from b";
  ASSERT_EQ(run({clone}), "");
  for (const ProgramTensor& t : c->program.tensors) {
    if (t.name != "b") continue;
    EXPECT_EQ(t.owner, Owner::Activations) << "it costs nothing to keep what nobody reads";
  }
}

}  // namespace
}  // namespace galley::hand
