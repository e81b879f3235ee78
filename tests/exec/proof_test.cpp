#include "host/exec/proof.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/exec/small.hpp"

namespace galley {
namespace {

using small::Builder;
using small::Running;

// Two trained tensors a and b, whose gradients the test sets, and frozen ones: where kernels compute, and elsewhere.
struct Model {
  explicit Model(std::vector<double> rates = {0.5}, double start = 1) {
    build.scalars({GALLEY_SCALAR_APPLY, GALLEY_SCALAR_GRADIENT_FACTOR});
    build.option("sgd.lr", std::move(rates));
    frozen = build.tensor("frozen", {8}, Life::Run, 1);
    const TensorId made = build.tensor("made", {8});
    build.kernel(SegmentKind::Load, small::fill, {}, {build.write(made)}, 3);
    build.copy(SegmentKind::Load, made, frozen, 0, 0);
    frozen_here = build.tensor("frozen here", {5});
    build.kernel(SegmentKind::Load, small::fill, {}, {build.write(frozen_here)}, 2);
    for (const char* name : {"a", "b"}) {
      const TensorId p = build.tensor(name, {4}), g = build.tensor(std::string(name) + ".grad", {4});
      const Operand s = build.number(GALLEY_F64);
      build.kernel(SegmentKind::Load, small::fill, {}, {build.write(p)}, start);
      build.kernel(SegmentKind::Update, small::sum_squares, {build.read(g)}, {s});
      build.kernel(SegmentKind::Update, small::descend,
                   {build.update(p), build.read(g), build.option("sgd.lr"), build.scalar(GALLEY_SCALAR_GRADIENT_FACTOR),
                    build.scalar(GALLEY_SCALAR_APPLY)},
                   {});
      Trained trained;
      trained.name = name;
      trained.parameter = p;
      trained.gradient = g;
      trained.sum_squares = s;
      trained.count = 4;
      build.program.trained.push_back(trained);
    }
    build.program.frozen = {frozen, frozen_here};
    build.own_steps();
  }
  /// b's.
  void lose_update() {
    std::vector<Instruction>& code = build.program.segment(SegmentKind::Update).code;
    const auto last =
        std::find_if(code.rbegin(), code.rend(), [](const Instruction& i) { return i.launch() && i.launch()->kernel == &small::descend; });
    code.erase(std::next(last).base());
  }
  uint64_t& flags(size_t i) { return build.program.trained[i].flags; }
  Builder build;
  TensorId frozen, frozen_here;
};

struct Training {
  explicit Training(const Model& model) : running(model.build), proof(*running.executor) {
    EXPECT_TRUE(running.executor->load().ok());
    EXPECT_TRUE(proof.after_load().ok());
  }
  /// A step with these gradients; what the proof says of it.
  std::string step(float a, float b, int64_t tokens = 8, bool apply = true) {
    const ProofStep begin = {.attempted = ++attempted, .applied = applied, .window_tokens = tokens};
    EXPECT_TRUE(running.executor->begin_step({attempted, tokens}).ok());
    set(0, a);
    set(1, b);
    if (!apply) {
      const Operand at = running.builder.scalar(GALLEY_SCALAR_APPLY);
      EXPECT_TRUE(running.executor->machine()
                      .fill(at.tensor, at.offset, sizeof(int32_t),
                            [](std::span<std::byte> bytes) -> Status {
                              std::ranges::fill(bytes, std::byte{0});
                              return ok();
                            })
                      .ok());
    }
    Status status = proof.before_step(begin);
    if (status.ok()) status = running.executor->run_update();
    if (status.ok()) status = running.executor->await_update();
    if (status.ok()) status = proof.after_step(begin);
    applied += apply;
    EXPECT_TRUE(status.ok() || status.error().exit == Exit::Failed);
    return status.ok() ? "" : status.error().cause;
  }
  void set(size_t i, float gradient) {
    auto* g = reinterpret_cast<float*>(running.executor->address(running.builder.program.trained[i].gradient));
    std::fill_n(g, 4, gradient);
  }
  Running running;
  Proof proof;
  int64_t attempted = 0, applied = 1;
};

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(Proof, TrainingIsProved) {
  Training run((Model()));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run.step(0.1f, -0.1f), "");
  EXPECT_TRUE(run.proof.unmoved().empty());
  EXPECT_TRUE(run.proof.finish().ok());
}

TEST(Proof, ATensorThatNeverHasAGradientIsNamed) {
  Training run((Model()));
  for (int64_t i = 1; i < Proof::kSpan; ++i) EXPECT_EQ(run.step(0.1f, 0), "") << i;
  EXPECT_EQ(run.proof.without_gradient(), std::vector<std::string>{"b"});
  EXPECT_EQ(run.step(0.1f, 0), "1 of 2 trainable tensors got no gradient in any step up to 32: 'b'");
}

TEST(Proof, AStepWithoutGradientIsNothing) {
  Training run((Model()));
  for (int i = 0; i < 20; ++i) EXPECT_EQ(run.step(0.1f, 0), "");
  EXPECT_EQ(run.step(0.1f, 1e-6f), "");
  for (int i = 0; i < 40; ++i) EXPECT_EQ(run.step(0, 0), "");
  EXPECT_TRUE(run.proof.without_gradient().empty());
  EXPECT_TRUE(run.proof.finish().ok());
}

TEST(Proof, WhatHadAGradientBeforeTheProcessNeedsNoneAgain) {
  Training run((Model()));
  run.proof.restore({});
  run.applied = 1000;
  for (int i = 0; i < 40; ++i) EXPECT_EQ(run.step(0, 0), "");
  Training other((Model()));
  other.proof.restore({"b"});
  other.applied = 1000;
  EXPECT_EQ(other.step(0, 0), "1 of 2 trainable tensors got no gradient in any step up to 1: 'b'");
}

TEST(Proof, AShortRunInWhichNothingTrainsFails) {
  Training run((Model()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run.step(0, 0), "");
  const Status status = run.proof.finish();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().cause, "no trainable tensor got a gradient in any step: 'a', 'b'");
  Training one((Model()));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(one.step(0, 0.1f), "");
  EXPECT_TRUE(one.proof.finish().ok());
}

TEST(Proof, AGradientThatIsNotFiniteIsNamed) {
  Training run((Model()));
  EXPECT_EQ(run.step(1, 1), "");
  EXPECT_EQ(run.step(kNaN, 1), "1 of 2 trainable tensors got a gradient that is not finite in step 2: 'a'");
}

TEST(Proof, StepsWithoutTokensOrSkippedOnesProveNothing) {
  Training run((Model()));
  EXPECT_EQ(run.step(1, 1), "");
  EXPECT_EQ(run.step(0, 0, 0), "");
  EXPECT_EQ(run.step(kNaN, 0, 8, false), "");
  EXPECT_TRUE(run.proof.without_gradient().empty());
}

TEST(Proof, DeclaredZerosAreLegal) {
  Model model;
  model.flags(1) = GALLEY_TENSOR_ZERO_GRADIENT;
  Training run(model);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(run.step(1, 0), "");
}

TEST(Proof, ALateGradientWaitsForTheFirstStepThatMoves) {
  Model model({0, 0, 0.1});  // a warm-up from 0: before step 4 nothing has moved, so LoRA's A still stands beside zeros
  model.flags(1) = GALLEY_TENSOR_LATE_GRADIENT;
  Training run(model);
  for (int64_t i = 0; i < 2 + Proof::kSpan; ++i) EXPECT_EQ(run.step(1, 0), "") << i;
  EXPECT_EQ(run.step(1, 0), "1 of 2 trainable tensors got no gradient in any step up to 35: 'b'");
}

TEST(Proof, ATensorThatDoesNotMoveIsNamed) {
  Model model;
  model.lose_update();
  Training run(model);
  EXPECT_EQ(run.step(0.1f, 0.1f), "");
  EXPECT_EQ(run.step(0.1f, 0.1f), "1 of 2 trainable tensors got a gradient and did not move in step 2: 'b'");
}

TEST(Proof, ALearningRateOfZeroMovesNothingAndIsWaitedFor) {
  Model model({0, 0, 0, 0.1});
  Training run(model);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run.step(1, 1), "");
  EXPECT_TRUE(run.proof.unmoved().empty());
  model.lose_update();
  Training lost(model);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(lost.step(1, 1), "");
  EXPECT_NE(lost.step(1, 1), "");
}

TEST(Proof, RoundingIsAnExcuse) {
  Training run(Model({1e-9}, 1.0));  // 1 − 1e-9 · 1 is 1 in F32
  for (int i = 0; i < 30; ++i) EXPECT_EQ(run.step(1, 1), "");
  EXPECT_EQ(run.proof.unmoved(), (std::vector<std::string>{"a", "b"}));
}

TEST(Proof, FrozenBytesStay) {
  Model model;
  Training run(model);
  EXPECT_EQ(run.step(1, 1), "");
  EXPECT_TRUE(run.proof.finish().ok());
  reinterpret_cast<float*>(run.running.executor->address(model.frozen))[7] = -3;
  const Status status = run.proof.finish();
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().cause, "1 of 2 frozen tensors have changed since they were loaded: 'frozen'");
  reinterpret_cast<float*>(run.running.executor->address(model.frozen_here))[4] = 2.0000002f;
  EXPECT_EQ(run.proof.finish().error().cause, "2 of 2 frozen tensors have changed since they were loaded: 'frozen', 'frozen here'");
}

}  // namespace
}  // namespace galley
