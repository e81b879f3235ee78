#include "host/proofs/shadow.hpp"

#include <gtest/gtest.h>

#include "galley/op.h"
#include "host/proofs/check.hpp"
#include "tests/plan/little.hpp"
#include "tests/plan/models.hpp"

namespace galley {
namespace {

/// A weight that is loaded, its gradient over a window, and the update.
struct Step : Little {
  TensorId weight = tensor("weight", 100, Life::Run), gradient = tensor("gradient", 100, Life::Window), x = tensor("x", 50),
           y = tensor("y", 50);
  explicit Step(int64_t micro_batches = 1) {
    program.micro_batches = micro_batches;
    op(kLoad, "init", {}, {w(weight)});
    op(kMicro, "forward", {r(weight)}, {w(x)});
    op(kMicro, "act", {r(x)}, {w(y)});
    op(kMicro, "backward", {r(y)}, {wa(gradient)});
    op(kUpdate, "step", {r(gradient), rw(weight)}, {});
  }
  Instruction& micro(size_t i) { return program.segment(kMicro).code[i]; }
};

TEST(Shadow, AcceptsAStep) {
  EXPECT_EQ(verdict(Step().program), "");
  EXPECT_EQ(verdict(Step(4).program), "");
  EXPECT_EQ(verdict(Program()), "");
}

TEST(Shadow, ReadOfWhatNothingWrote) {
  Step s;
  s.program.segment(kLoad).code.clear();
  EXPECT_SAYS(verdict(s.program), "micro[0] 'forward' reads 'weight' bytes [0, 400), which nothing has written");
}

TEST(Shadow, ReadOfBytesBesideThoseWritten) {
  Step s;
  s.micro(0).outputs = {s.part(s.x, 0, 40, GALLEY_WRITE)};
  EXPECT_SAYS(verdict(s.program), "micro[1] 'act' reads 'x' bytes [160, 200), which nothing has written");
}

TEST(Shadow, AdditionToNothing) {
  Step s;
  s.micro(2).outputs = {s.a(s.gradient)};
  EXPECT_SAYS(verdict(s.program), "micro[2] 'backward' reads 'gradient'");
}

TEST(Shadow, AValueDoesNotOutliveItsSegment) {
  // In the second micro-batch the bytes of the first are still there, and must not be used.
  Step s(2);
  std::swap(s.micro(0), s.micro(1));
  s.micro(0).inputs[0].access = GALLEY_WRITE;  // only later micro-batches read it
  EXPECT_SAYS(verdict(s.program), "micro[0] 'act' reads 'x' bytes [0, 200), which nothing has written in this segment");
}

TEST(Shadow, AGradientIsLostAfterItsWindow) {
  Step s;
  s.micro(2).outputs.clear();
  s.micro(2).inputs.push_back(s.r(s.gradient));
  own_all(s.micro(2));
  s.op(kUpdate, "too late", {}, {s.w(s.gradient)});
  s.program.segment(kUpdate).code.erase(s.program.segment(kUpdate).code.begin());
  EXPECT_SAYS(verdict(s.program), "micro[2] 'backward' reads 'gradient'");
}

TEST(Shadow, TensorOfOneSegmentInTwo) {
  Step s;
  s.op(kEval, "peek", {s.r(s.x)}, {});
  EXPECT_SAYS(verdict(s.program), "tensor 'x' of one segment is used in micro, eval");
}

TEST(Shadow, GradientOutsideItsWindow) {
  Step s;
  s.op(kEval, "peek", {s.r(s.gradient)}, {});
  EXPECT_SAYS(verdict(s.program), "tensor 'gradient' of a window is used in micro, update, eval");
}

TEST(Shadow, OperandBeyondItsTensor) {
  Step s;
  s.micro(1).inputs = {s.part(s.x, 40, 20, GALLEY_READ)};
  EXPECT_SAYS(verdict(s.program), "micro[1] 'act' uses 'x' bytes [160, 240), which has 200");
}

TEST(Shadow, OperandsThatOverlap) {
  Step s;
  s.micro(1).outputs = {s.part(s.x, 10, 20, GALLEY_WRITE)};
  EXPECT_SAYS(verdict(s.program), "micro[1] 'act' has operands that overlap: 'x' bytes [0, 200) and [40, 120)");
  s.micro(1).outputs = {s.r(s.x)};  // reading twice is no harm
  s.micro(2).inputs = {s.r(s.x)};
  EXPECT_EQ(verdict(s.program), "");
}

TEST(Shadow, AnOutputMayTakeOverAnInputWhereTheOpSaysSo) {
  galley_operand_rule in = {sizeof(galley_operand_rule), 1, "x", GALLEY_ROLE_ROWS, -1, 0, nullptr}, out = in;
  out.alias = 0;
  const galley_operand_rule *ins[] = {&in}, *outs[] = {&out};
  galley_op relu = {};
  relu.name = "relu";
  relu.inputs = ins;
  relu.outputs = outs;
  relu.n_inputs = relu.n_outputs = 1;
  Step s;
  s.micro(1).launch()->nodes[0].op = &relu;
  s.micro(1).outputs = {s.w(s.x)};
  s.micro(2).inputs = {s.r(s.x)};
  EXPECT_EQ(verdict(s.program), "");
  s.micro(1).inputs = {s.part(s.x, 0, 40, GALLEY_READ)};
  EXPECT_SAYS(verdict(s.program), "operands that overlap");
  s.micro(1).inputs = {s.r(s.x)};
  out.alias = -1;
  EXPECT_SAYS(verdict(s.program), "operands that overlap");
}

TEST(Shadow, KernelsComputeWhereTheClassDoes) {
  Step s;
  s.program.tensors[static_cast<size_t>(s.x)].memory = 1;
  EXPECT_SAYS(verdict(s.program), "micro[0] 'forward' computes with 'x' in memory class 'spill', which does not compute");
}

TEST(Shadow, WhatTheHostRunsLiesWhereItReaches) {
  Step s;
  s.program.tensors[static_cast<size_t>(s.x)].memory = 1;
  for (const size_t i : {0, 1}) s.micro(i).launch()->on_host = true;
  Target target = little_target();
  EXPECT_TRUE(check_program(s.program, target).ok());
  target.memories[1].host_access = false;
  EXPECT_SAYS(check_program(s.program, target).error().cause,
              "micro[0] 'forward' computes with 'x' in memory class 'spill', which lies beyond the host's reach");
}

/// x is made, copied to y in the other class, changed; y is copied back and read.
struct Offload : Little {
  TensorId x = tensor("x", 50), away = tensor("away", 50, Life::Segment, 1), back = tensor("back", 50), other = tensor("other", 50);
  Offload() {
    op(kMicro, "make", {}, {w(x)});
    sync(kMicro, Action::Record, 0, 1);
    sync(kMicro, Action::Wait, 1, 1);
    copy(kMicro, "out", x, away, 1, 2);
    op(kMicro, "other", {}, {w(other)});
    sync(kMicro, Action::Wait, 0, 2);
    op(kMicro, "change", {}, {w(x)});
    sync(kMicro, Action::Record, 0, 3);
    sync(kMicro, Action::Wait, 1, 3);
    copy(kMicro, "in", away, back, 1, 4);
    sync(kMicro, Action::Wait, 0, 4);
    op(kMicro, "use", {r(back)}, {});
  }
  void drop(size_t i) { program.segment(kMicro).code.erase(program.segment(kMicro).code.begin() + static_cast<std::ptrdiff_t>(i)); }
  void move(size_t from, size_t to) {
    auto& code = program.segment(kMicro).code;
    Instruction i = std::move(code[from]);
    drop(from);
    code.insert(code.begin() + static_cast<std::ptrdiff_t>(to), std::move(i));
  }
};

/// A gradient whose home is in the other class: from the second micro-batch on, what is there comes back first.
TEST(Shadow, ACopyThatTheFirstMicroBatchLeavesOut) {
  struct Elsewhere : Little {
    TensorId home = tensor("home", 50, Life::Window, 1), sum = tensor("sum", 50), back = tensor("back", 50);
    Elsewhere() {
      program.micro_batches = 2;
      copy(kMicro, "bring", home, sum, 0, 0);
      op(kMicro, "backward", {}, {wa(sum)});
      copy(kMicro, "take", sum, home, 0, 0);
      copy(kUpdate, "fetch", home, back, 0, 0);
      op(kUpdate, "step", {r(back)}, {});
    }
    Instruction& bring() { return program.segment(kMicro).code[0]; }
  };
  Elsewhere e;
  EXPECT_SAYS(verdict(e.program), "micro[0] 'bring' reads 'home' bytes [0, 200), which nothing has written");
  e.bring().when = When::LaneGoesOn;
  EXPECT_EQ(verdict(e.program), "");
  e.program.segment(kMicro).code.erase(e.program.segment(kMicro).code.begin());
  EXPECT_SAYS(verdict(e.program), "micro[0] 'backward' reads 'sum' bytes [0, 200), which nothing has written in this segment");
  e.program.segment(kMicro).code[0].outputs[0].access = 0;
  EXPECT_SAYS(verdict(e.program), "access 0");
  e.program.segment(kMicro).code[0].outputs[0].access = GALLEY_WRITE;
  e.program.segment(kUpdate).code[0].when = When::LaneEnds;
  EXPECT_SAYS(verdict(e.program), "update[0] 'fetch': only micro knows lanes");
}

/// Caches begin anew with zeros for other texts, in a program that does something else between.
TEST(Shadow, CachesBeginAnew) {
  struct Anew : Little {
    TensorId weight = tensor("weight", 16, Life::Run), cache = tensor("cache", 32, Life::Texts), x = tensor("x", 32);
    Anew() {
      op(kLoad, "init", {}, {w(weight)});
      op(kMicro, "forward", {rw(weight)}, {w(x)});
      op(SegmentKind::Caches, "zeros", {}, {w(cache)});
      op(SegmentKind::Sample, "keep", {part(cache, 0, 4, GALLEY_READ_WRITE)}, {});
      op(SegmentKind::Next, "attend", {r(cache)}, {});
    }
  };
  Anew t;
  EXPECT_EQ(verdict(t.program), "");
  t.program.segment(SegmentKind::Caches).code.clear();
  EXPECT_SAYS(verdict(t.program), "sample[0] 'keep' reads 'cache' bytes [0, 16), which nothing has written");
}

TEST(Shadow, CopiesThatAreWaitedFor) {
  Offload o;
  EXPECT_EQ(verdict(o.program), "");
  const Plan plan = make_plan(o.program, little_target());
  // In flight from what queue 1 had waited for to the wait of queue 0.
  EXPECT_EQ(plan.placements[static_cast<size_t>(o.away)].first, 2);
  EXPECT_EQ(plan.placements[static_cast<size_t>(o.away)].last, 10);
  EXPECT_EQ(plan.placements[static_cast<size_t>(o.back)].first, 8);
}

TEST(Shadow, SourceChangedUnderACopy) {
  Offload o;
  o.move(5, 6);
  EXPECT_SAYS(verdict(o.program),
              "micro[5] 'change' on queue 0 writes 'x' bytes [0, 200) without having waited for micro[3] 'out', which reads it on queue 1");
}

TEST(Shadow, DestinationReadUnderACopy) {
  Offload o;
  o.move(10, 11);
  EXPECT_SAYS(verdict(o.program),
              "micro[10] 'use' on queue 0 reads 'back' bytes [0, 200) without having waited for micro[9] 'in' on queue 1");
}

TEST(Shadow, DestinationWrittenUnderACopy) {
  Offload o;
  o.program.segment(kMicro).code[11].inputs.clear();
  o.program.segment(kMicro).code[11].outputs = {o.w(o.back)};
  own_all(o.program.segment(kMicro).code[11]);
  o.move(10, 11);
  EXPECT_SAYS(verdict(o.program),
              "micro[10] 'use' on queue 0 writes 'back' bytes [0, 200) without having waited for micro[9] 'in', which writes it too");
}

TEST(Shadow, CopyBeforeItsSourceIsThere) {
  Offload o;
  o.move(0, 1);  // the event is recorded before x is made
  EXPECT_SAYS(verdict(o.program),
              "micro[3] 'out' on queue 1 reads 'x' bytes [0, 200) without having waited for micro[1] 'make' on queue 0");
}

TEST(Shadow, CopyOnAQueueThatWaitedForNothing) {
  Offload o;
  o.drop(2);
  EXPECT_SAYS(verdict(o.program), "micro[2] 'out' runs on queue 1, which has not waited for queue 0 in this segment");
}

TEST(Shadow, CopyThatNobodyWaitsFor) {
  Offload o;
  o.drop(11);
  o.drop(10);
  EXPECT_SAYS(verdict(o.program), "micro[9] 'in' on queue 1 is still under way when the segment ends");
}

TEST(Shadow, WaitForAnEventThatIsNotRecorded) {
  Offload o;
  o.program.segment(kMicro).code[5].event = 7;
  EXPECT_SAYS(verdict(o.program), "micro[5] 'wait' waits for event 7, which nothing in this segment has recorded before");
}

TEST(Shadow, CopyOnQueue0CountsAsPutOff) {
  Offload o;
  for (Instruction& code : o.program.segment(kMicro).code) code.queue = 0;
  EXPECT_EQ(verdict(o.program), "");
  o.move(5, 6);
  EXPECT_SAYS(verdict(o.program), "micro[5] 'change' on queue 0 writes 'x'");
}

TEST(Shadow, PlanThatDoesNotFit) {
  const Step s(2);
  const Plan good = make_plan(s.program, little_target());
  const auto gradient = static_cast<size_t>(s.gradient), weight = static_cast<size_t>(s.weight), x = static_cast<size_t>(s.x),
             y = static_cast<size_t>(s.y);
  Plan plan = good;
  plan.placements[x].offset += 4;
  EXPECT_SAYS(verdict(s.program, plan), "'x' is at " + std::to_string(plan.placements[x].offset) + ", off the alignment of 64");
  plan = good;
  plan.placements[x].offset = plan.classes[0].planned;
  EXPECT_SAYS(verdict(s.program, plan), "of an arena of");
  plan = good;
  plan.placements[x].offset = -64;
  EXPECT_SAYS(verdict(s.program, plan), "of an arena of");
  plan = good;
  plan.placements[y].offset = plan.placements[x].offset;
  EXPECT_SAYS(verdict(s.program, plan), "share bytes at moment 2");
  plan = good;
  ++plan.placements[gradient].first;
  EXPECT_SAYS(verdict(s.program, plan), "a window's tensor must outlive micro, [1, 4)");
  plan = good;
  --plan.placements[gradient].last;
  EXPECT_SAYS(verdict(s.program, plan), "update[0] 'step' needs 'gradient' from moment 4 to 4, but it lives from 1 to 3");
  plan = good;
  --plan.placements[weight].last;
  EXPECT_SAYS(verdict(s.program, plan), "'weight' lives from 0 to 3 and not for the whole run");
  plan = good;
  ++plan.segment_begin[static_cast<size_t>(SegmentKind::Update)];
  EXPECT_SAYS(verdict(s.program, plan), "update begins at moment 5 and not 4");
  plan = good;
  plan.classes[0].lower_bound = plan.classes[0].planned + 1;
  EXPECT_SAYS(verdict(s.program, plan), "fewer than the lower bound");
}

TEST(Shadow, TheRunFindsOverlapsWithoutTheSweep) {
  const Step s;
  Plan plan = make_plan(s.program, little_target());
  plan.placements[static_cast<size_t>(s.gradient)].offset = plan.placements[static_cast<size_t>(s.weight)].offset + 64;
  const Status status = run_shadow(s.program, plan, little_target());
  ASSERT_FALSE(status.ok());
  EXPECT_SAYS(
      status.error().cause,
      "update[0] 'step' reads 'weight' bytes [64, 400) written by load[0] 'init', but finds what micro[2] 'backward' wrote to 'gradient'");
}

TEST(Shadow, WhatTheHostReadsLivesToTheEnd) {
  Step s;
  const TensorId logits = s.tensor("logits", 30), sum = s.tensor("sum", 1);
  s.micro(1).outputs.push_back(s.w(logits));
  own_all(s.micro(1));
  s.program.segment(kUpdate).code[0].outputs.push_back(s.w(sum));
  own_all(s.program.segment(kUpdate).code[0]);
  s.op(kUpdate, "after", {}, {});
  s.program.logits = logits;
  Trained trained;
  trained.sum_squares = s.r(sum);
  s.program.trained.push_back(trained);
  const Plan plan = make_plan(s.program, little_target());
  EXPECT_EQ(verdict(s.program, plan), "");
  for (const TensorId id : {logits, sum}) {
    Plan shorter = plan;
    --shorter.placements[static_cast<size_t>(id)].last;
    EXPECT_SAYS(verdict(s.program, shorter), "the host after");
  }
  s.micro(1).outputs.pop_back();
  own_all(s.micro(1));
  EXPECT_SAYS(verdict(s.program), "the host after micro reads 'logits' bytes [0, 120), which nothing has written");
}

TEST(Shadow, HostBuffersLiveForTheRun) {
  Step s;
  s.program.staging = s.tensor("staging", 8);
  EXPECT_SAYS(verdict(s.program), "'staging' is written by the host (staging) and must live for the whole run");
}

TEST(Shadow, DroppingAWaitThatOrdersIsNoticed) {
  models::Spec spec = models::random_spec(1);
  spec.layers = 1;
  spec.training = models::Training::Full;
  spec.offload = models::Offload::States;
  spec.optimizer = models::Optimizer::Adam;
  const Program good = models::build(spec);
  ASSERT_EQ(verdict(good), "");
  const auto& code = good.segment(kUpdate).code;
  size_t dropped = 0;
  for (size_t i = 2; i + 1 < code.size(); ++i) {
    // The last wait before a step, for the state that has come in; the wait of queue 1 for the step that a copy takes the result of. Others
    // are covered by these.
    if (code[i].action() != Action::Wait || (code[i].queue == 0 ? code[i + 1] : code[i - 2]).action() != Action::Launch) continue;
    Program program = good;
    program.segment(kUpdate).code.erase(program.segment(kUpdate).code.begin() + static_cast<std::ptrdiff_t>(i));
    ++dropped;
    EXPECT_NE(verdict(program), "") << place_text(good, kUpdate, i);
  }
  EXPECT_GT(dropped, 50u);
}

}  // namespace
}  // namespace galley
