// What exchanges between processes take.
#include "host/plan/timing.hpp"

#include <gtest/gtest.h>

#include "tests/plan/little.hpp"

namespace galley {
namespace {

constexpr double kWork = 8, kSent = 1e6;  // seconds of the other launch of a micro-batch; bytes that an exchange sends

/// A micro-batch that computes and then exchanges, at the end of its lane; an update that exchanges as well.
struct Exchanging {
  Little little;
  Target target = little_target();
  galley_op op = {};

  explicit Exchanging(int64_t ranks, int64_t micro_batches) {
    op.size = sizeof op;
    op.name = "exchange";
    op.flags = GALLEY_OP_EXCHANGE;
    target.peaks = {{"f32", 1}};
    target.memories[0].in_bandwidth = 1e12;
    target.links = {{"board", 8, 1e6, .25}, {"network", 0, 1e5, .5}};
    Program& program = little.program;
    program.ranks = program.lanes = ranks;
    program.micro_batches = micro_batches;
    program.rows = 2;
    program.length = 5;
    const TensorId x = little.tensor("x", 4), y = little.tensor("y", 4);
    little.op(kMicro, "work", {little.r(x)}, {little.w(y)}).launch()->flops = kWork;
    exchange(kMicro, y).when = When::LaneEnds;
    exchange(kUpdate, y);
  }
  Instruction& exchange(SegmentKind kind, TensorId t) {
    Instruction& made = little.op(kind, "exchange", {little.rw(t)}, {});
    made.launch()->nodes[0].op = &op;
    made.launch()->nodes[0].attrs.set("ranks", little.program.ranks);
    made.launch()->link_bytes = kSent;
    return made;
  }
  double seconds() const { return instruction_seconds(little.program, little.program.segment(kMicro).code[1], target); }
  ExchangeTimes times() const { return exchange_times(little.program, target); }
};

TEST(Exchanges, TakeTheNearestLinkThatJoinsAll) {
  // Bytes by the bandwidth, and as many latencies as there are doublings up to all processes.
  EXPECT_DOUBLE_EQ(Exchanging(2, 2).seconds(), 1 + .25);
  EXPECT_DOUBLE_EQ(Exchanging(3, 3).seconds(), 1 + 2 * .25);
  EXPECT_DOUBLE_EQ(Exchanging(4, 4).seconds(), 1 + 2 * .25);
  EXPECT_DOUBLE_EQ(Exchanging(8, 8).seconds(), 1 + 3 * .25);
  EXPECT_DOUBLE_EQ(Exchanging(9, 9).seconds(), 10 + 4 * .5);
  EXPECT_DOUBLE_EQ(Exchanging(512, 512).seconds(), 10 + 9 * .5);
  Exchanging made(2, 2);
  made.target.memories[0].in_bandwidth = 1;  // the operand, once read
  EXPECT_DOUBLE_EQ(made.seconds(), 16) << "what the kernel does here takes longer";
}

TEST(Exchanges, OfGroupsTakeTheLinkOfTheirSpan) {
  Exchanging made(64, 64);
  AttrList& attrs = made.little.program.segment(kMicro).code[1].launch()->nodes[0].attrs;
  attrs.set("ranks", int64_t{8});
  EXPECT_DOUBLE_EQ(made.seconds(), 1 + 3 * .25) << "neighbours on a board";
  attrs.set("stride", int64_t{8});
  EXPECT_DOUBLE_EQ(made.seconds(), 10 + 3 * .5) << "one on each board";
  EXPECT_EQ((AlongAxis{8, 8}.place(43)), 5);
  EXPECT_EQ((AlongAxis{8, 8}.member(43, 0)), 3);
  EXPECT_EQ((AlongAxis{8, 1}.member(43, 7)), 47);
}

TEST(Exchanges, OfOneProcessOrOnNoLinkTakeWhatTheKernelTakes) {
  Exchanging alone(1, 2), plain(1, 2);
  plain.target.links.clear();
  EXPECT_EQ(alone.seconds(), plain.seconds());
  EXPECT_EQ(step_seconds(alone.little.program, alone.target), step_seconds(plain.little.program, plain.target));
  EXPECT_EQ(alone.times().link, nullptr);
  Exchanging unknown(9, 9);
  unknown.target.links.pop_back();
  EXPECT_EQ(unknown.times().link, nullptr) << "no link joins 9";
  EXPECT_EQ(unknown.seconds(), plain.seconds());
  Exchanging other(2, 2);
  other.op.flags = 0;
  EXPECT_EQ(other.seconds(), plain.seconds()) << "no exchange";
}

TEST(Exchanges, OfAStep) {
  // 2 processes with a lane of 3 micro-batches each: one exchange at the lane's end, one in the update. Nothing is on another queue.
  Exchanging made(2, 6);
  const ExchangeTimes times = made.times();
  ASSERT_NE(times.link, nullptr);
  EXPECT_EQ(times.link->name, "board");
  EXPECT_NEAR(times.seconds, 2 * 1.25, 1e-9);
  EXPECT_NEAR(times.alone, times.seconds, 1e-9);
  EXPECT_NEAR(step_seconds(made.little.program, made.target), 3 * kWork + 2 * 1.25, 1e-9);
  EXPECT_EQ(times.positions, 2) << "10 positions take 8 seconds, so 1.25 take 1.6";
}

TEST(Exchanges, BesideOtherWorkAreHidden) {
  Exchanging made(2, 2);
  std::vector<Instruction>& micro = made.little.program.segment(kMicro).code;
  std::swap(micro[0], micro[1]);
  micro[0].queue = 1;
  EXPECT_NEAR(made.times().seconds, 2 * 1.25, 1e-9);
  EXPECT_NEAR(made.times().alone, 1.25, 1e-9) << "that of the update";
  micro[0].launch()->link_bytes = 9e6;
  EXPECT_NEAR(made.times().alone, 1.25 + 9.25 - kWork, 1e-9) << "and what is longer than the work";
}

TEST(Exchanges, HiddenByNothing) {
  Exchanging idle(2, 2), late(2, 2);
  idle.little.program.segment(kMicro).code[0].launch()->flops = 0;
  EXPECT_FALSE(idle.times().positions) << "no arithmetic";
  late.little.program.segment(kMicro).code.pop_back();
  EXPECT_FALSE(late.times().positions) << "no exchange in a micro-batch";
  EXPECT_NEAR(late.times().seconds, 1.25, 1e-9);
}

}  // namespace
}  // namespace galley
