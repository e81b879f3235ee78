// Copies beside kernels: when they begin, by when they are over, what they hold meanwhile, and that no link makes them slower than waiting.
#include "host/passes/transfers.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "host/plan/plan.hpp"
#include "host/plan/timing.hpp"
#include "host/proofs/describe.hpp"
#include "host/proofs/shadow.hpp"
#include "tests/passes/hand.hpp"
#include "tests/plan/little.hpp"

namespace galley {
namespace {

constexpr SegmentKind kUpdate = SegmentKind::Update;

/// Steps of so many seconds, and copies of one element a second, each of which waits for all before it, as they are placed.
struct Streams : Little {
  Target target;

  Streams() {
    target.queues = {Queue::Compute, Queue::In, Queue::Out};
    target.peaks = {{"f32", 1}};
    target.memories = {{"device", 4, false, true}, {"away", 4, true, false}};
    target.memories[0].in_bandwidth = 1e30;
    link(1);
  }
  void link(double seconds) { target.memories[1].in_bandwidth = target.memories[1].out_bandwidth = 4 / seconds; }
  TensorId away(const std::string& name, int64_t count) { return tensor(name, count, Life::Run, 1); }

  void step(const std::string& name, double seconds, std::vector<Operand> operands) {
    op(kUpdate, name, std::move(operands), {}).launch()->flops = seconds;
  }
  void copy_between(const Operand& from, const Operand& to) {
    const uint32_t queue = program.tensors[static_cast<size_t>(to.tensor)].memory == 0 ? 1 : 2, event = events_ += 2;
    sync(kUpdate, Action::Record, 0, event - 1);
    sync(kUpdate, Action::Wait, queue, event - 1);
    copy(kUpdate, "copy", from.tensor, to.tensor, queue, event);
    program.segment(kUpdate).code.back().inputs[0] = from;
    program.segment(kUpdate).code.back().outputs[0] = to;
    sync(kUpdate, Action::Wait, 0, event);
  }
  /// A range of what lies away; it is written while loading.
  TensorId bring(TensorId from, int64_t first, int64_t count) {
    const TensorId here = tensor("staged " + std::to_string(program.tensors.size()), count, Life::Segment, 0, Owner::Workspace);
    copy_between(part(from, first, count, GALLEY_READ), w(here));
    return here;
  }
  void take_back(TensorId here, TensorId to, int64_t first) {
    copy_between(r(here), part(to, first, program.tensors[static_cast<size_t>(here)].shape[0], GALLEY_WRITE));
  }
  /// Everything that lives for the run is there when the segment begins.
  void load() {
    for (size_t t = 0; t < program.tensors.size(); ++t) {
      if (program.tensors[t].life != Life::Run) continue;
      Instruction& i = op(SegmentKind::Load, "load", {}, {w(static_cast<TensorId>(t))});
      i.what = Read();
    }
  }
  const std::vector<Instruction>& code() const { return program.segment(kUpdate).code; }
  Transfers copies() const { return {program, code(), target, target.queue_for(Queue::Exchange)}; }
  double seconds() const { return segment_seconds(program, kUpdate, target); }
  int64_t peak() const { return make_plan(program, target).classes[0].lower_bound; }
  /// What queue 0 does and where copies begin: "a in b wait-in c".
  std::string text() const {
    std::string out;
    std::map<uint32_t, uint32_t> queues;
    for (const Instruction& i : code()) {
      if (i.records()) queues[i.event] = i.queue;
      if (i.action() == Action::Record || (i.action() == Action::Wait && i.queue != 0)) continue;
      out += out.empty() ? "" : " ";
      if (i.action() == Action::Wait) out += std::string("wait-") + std::array{"", "in", "out", "exchange"}[queues[i.event]];
      else out += i.action() == Action::Copy ? (i.queue == 1 ? "in" : "out") : i.name;
    }
    return out;
  }
  std::string proved() {
    Program whole = program;
    const Status status = check_plan(whole, make_plan(whole, target), target);
    return status ? "" : status.error().cause;
  }
  /// Two processes, whose exchanges have queue 3.
  void of_two() {
    program.ranks = program.lanes = program.micro_batches = 2;
    target.links = {{"network", 0, 1, 0}};
    target.queues.push_back(Queue::Exchange);
  }
  void exchange(double seconds, std::vector<Operand> inputs, std::vector<Operand> outputs) {
    Launch& launch = *op(kUpdate, "exchange", std::move(inputs), std::move(outputs)).launch();
    launch.nodes[0].op = exchange_op();
    launch.nodes[0].attrs.set("ranks", program.ranks);
    launch.link_bytes = seconds;
  }
  /// What other processes have of a tensor comes here.
  TensorId gather(TensorId part, double seconds) {
    const TensorId whole =
        tensor("whole " + std::to_string(program.tensors.size()), 2 * program.tensors[static_cast<size_t>(part)].shape[0]);
    exchange(seconds, {r(part)}, {w(whole)});
    return whole;
  }
  void hasten() { program.segment(kUpdate).code = copies().made(); }

 private:
  uint32_t events_ = 0;
};

TEST(Overlap, ACopyInBeginsJustEarlyEnough) {
  Streams s;
  const TensorId home = s.away("home", 3), x = s.tensor("x", 1, Life::Run);
  for (const char* name : {"a", "b", "c", "d"}) s.step(name, 2, {s.rw(x)});
  const TensorId here = s.bring(home, 0, 3);
  s.step("e", 2, {s.rw(x), s.r(here)});
  s.load();
  EXPECT_EQ(s.seconds(), 13);
  s.hasten();
  EXPECT_EQ(s.text(), "a b in c d wait-in e");
  EXPECT_EQ(s.seconds(), 10);
  EXPECT_EQ(s.proved(), "");
}

TEST(Overlap, ACopyOutIsOverWhenNobodyWaitsForIt) {
  Streams s;
  const TensorId home = s.away("home", 3), x = s.tensor("x", 1, Life::Run), here = s.tensor("here", 3);
  s.op(kUpdate, "make", {}, {s.w(here)}).launch()->flops = 2;
  s.take_back(here, home, 0);
  for (const char* name : {"a", "b", "c"}) s.step(name, 2, {s.rw(x)});
  s.load();
  EXPECT_EQ(s.seconds(), 11);
  s.hasten();
  EXPECT_EQ(s.text(), "make out a b wait-out c");
  EXPECT_EQ(s.seconds(), 8);
  EXPECT_EQ(s.proved(), "");
}

TEST(Overlap, WhatComesBackWaitsForWhatWentOut) {
  Streams s;
  const TensorId home = s.away("home", 2), x = s.tensor("x", 1, Life::Run), made = s.tensor("made", 2);
  s.op(kUpdate, "make", {}, {s.w(made)}).launch()->flops = 1;
  s.take_back(made, home, 0);
  s.step("a", 1, {s.rw(x)});
  s.step("b", 1, {s.rw(x)});
  const TensorId here = s.bring(home, 0, 2);
  s.step("c", 1, {s.rw(x), s.r(here)});
  s.load();
  s.hasten();
  EXPECT_EQ(s.seconds(), 6) << describe(s.program, kUpdate);
  EXPECT_EQ(s.proved(), "");
}

/// Parts of one tensor that come, change and go.
void stream(Streams& s, int64_t parts, int64_t part, double seconds) {
  const TensorId home = s.away("home", parts * part), g = s.tensor("g", 1, Life::Run);
  for (int64_t p = 0; p < parts; ++p) {
    const TensorId here = s.bring(home, p * part, part);
    s.step("step", seconds, {s.rw(here), s.r(g)});
    s.take_back(here, home, p * part);
  }
  s.load();
}

TEST(Overlap, AStreamHoldsFewBuffers) {
  for (const double seconds : {0.5, 1.0, 4.0, 8.0}) {
    Streams s;
    stream(s, 20, 4, seconds);
    EXPECT_DOUBLE_EQ(s.seconds(), 20 * (4 + 4 + seconds));
    const int64_t before = s.peak();
    s.hasten();
    EXPECT_NEAR(s.seconds(), std::max(20 * 4 + 4 + seconds, 20 * seconds + 8), 1e-6) << seconds;
    EXPECT_LE(s.peak(), before + 3 * 4 * 4) << seconds;
    EXPECT_EQ(s.proved(), "") << seconds;
  }
}

TEST(Overlap, ASlowWayOutDoesNotPileUp) {
  Streams s;
  stream(s, 20, 4, 1);
  s.target.memories[1].out_bandwidth = 1;
  const int64_t before = s.peak();
  s.hasten();
  EXPECT_NEAR(s.seconds(), 20 * 16 + 4 + 1, 1e-6);
  EXPECT_LE(s.peak(), before + 3 * 4 * 4);
  EXPECT_EQ(s.proved(), "");
}

TEST(Overlap, LessInFlightIsSlowerAndNeverMore) {
  double last = 0;
  for (const int64_t most : {int64_t{1000}, int64_t{32}, int64_t{16}, int64_t{0}}) {
    Streams s;
    stream(s, 10, 4, 4);
    const int64_t before = s.peak();
    Transfers copies = s.copies();
    copies.restrain(most);
    EXPECT_LE(copies.in_flight(), most);
    s.program.segment(kUpdate).code = copies.made();
    EXPECT_LE(s.peak(), before + most);
    EXPECT_EQ(s.proved(), "") << most;
    EXPECT_GE(s.seconds(), last);
    last = s.seconds();
  }
  EXPECT_EQ(last, 10 * 12.0) << "nothing in flight: with waits";
}

TEST(Overlap, ReadersThatAreCloseShareACopy) {
  for (const bool close : {true, false}) {
    Streams s;
    const TensorId home = s.away("home", 2), x = s.tensor("x", 1, Life::Run);
    for (const char* name : {"a", "b"}) {
      const TensorId here = s.bring(home, 0, 2);
      s.step(name, 1, {s.rw(x), s.r(here)});
      s.step(name, 1, {s.rw(x)});
      if (!close)
        for (int i = 0; i < 3; ++i) s.step("far", 1, {s.rw(x)});
    }
    EXPECT_EQ(s.copies().twice().size(), close ? 1u : 0u);
  }
}

TEST(Overlap, WhatHasChangedMeanwhileIsCopiedAgain) {
  Streams s;
  const TensorId home = s.away("home", 2), x = s.tensor("x", 1, Life::Run), made = s.tensor("made", 2);
  const TensorId first = s.bring(home, 0, 2);
  s.step("a", 1, {s.rw(x), s.r(first)});
  s.op(kUpdate, "make", {}, {s.w(made)}).launch()->flops = 1;
  s.take_back(made, home, 0);
  const TensorId second = s.bring(home, 0, 2);
  s.step("b", 1, {s.rw(x), s.r(first), s.r(second)});
  EXPECT_TRUE(s.copies().twice().empty());
  s.load();
  s.hasten();
  EXPECT_EQ(s.proved(), "");
}

/// Steps over a few tensors here and away, in any order; of two processes exchanges, too.
Streams anything(uint32_t seed, bool two = false) {
  std::mt19937 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  Streams s;
  if (two) s.of_two();
  std::vector<TensorId> homes, parts;
  for (int h = 0; h < 4; ++h) homes.push_back(s.away("home", 8));
  for (int h = 0; h < (two ? 3 : 0); ++h) parts.push_back(s.tensor("part", 2, Life::Run));
  const TensorId x = s.tensor("x", 8, Life::Run);
  for (int i = 0; i < 30; ++i) {
    const TensorId home = homes[static_cast<size_t>(below(4))];
    const int64_t count = 1 + below(4), first = below(9 - count), kind = below(two ? 7 : 4);
    const double seconds = static_cast<double>(below(5));
    if (kind == 0) {
      s.step("plain", seconds, {s.rw(x)});
    } else if (kind > 3) {
      const TensorId part = parts[static_cast<size_t>(below(3))], whole = s.gather(part, static_cast<double>(count));
      s.step("use", seconds, {s.rw(x), s.r(whole)});
      if (kind == 6) s.exchange(static_cast<double>(first), {s.rw(whole)}, {s.part(part, 0, 2, GALLEY_ACCUMULATE)});
    } else if (kind == 1) {
      const TensorId made = s.tensor("made", count);
      s.op(kUpdate, "make", {s.r(x)}, {s.w(made)}).launch()->flops = seconds;
      s.take_back(made, home, first);
    } else {
      const TensorId here = s.bring(home, first, count);
      s.step("use", seconds, {s.rw(x), kind == 2 ? s.r(here) : s.rw(here)});
      if (kind == 3) s.take_back(here, home, first);
    }
  }
  s.load();
  return s;
}

TEST(Overlap, NoLinkIsSlowerThanWaiting) {
  for (uint32_t seed = 0; seed < 80; ++seed) {
    for (const double link : {1e-6, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 1e3}) {
      Streams s = anything(seed, seed % 2 == 1);
      s.link(link);
      const double waiting = s.seconds();
      const int64_t before = s.peak();
      double busy[4] = {};
      for (const Instruction& i : s.code()) busy[i.exchanges() ? 3 : i.queue] += instruction_seconds(s.program, i, s.target);
      const Transfers copies = s.copies();
      s.hasten();
      EXPECT_LE(s.seconds(), waiting * (1 + 1e-9)) << seed << " " << link;
      EXPECT_GE(s.seconds() * (1 + 1e-9), std::max({busy[0], busy[1], busy[2], busy[3]})) << seed << " " << link;
      EXPECT_LE(s.peak(), before + copies.in_flight()) << seed << " " << link;
      EXPECT_EQ(s.proved(), "") << seed << " " << link;
    }
  }
}

// A wait that is missing is found, anywhere; of those that nothing rests on there are few.
TEST(Overlap, WaitsAreNeeded) {
  int missing = 0, waits = 0;
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Streams s = anything(seed, seed % 2 == 1);
    s.hasten();
    const std::vector<Instruction> code = s.code();
    const Plan plan = make_plan(s.program, s.target);
    for (size_t i = 0; i < code.size(); ++i) {
      if (code[i].action() != Action::Wait) continue;
      Instruction& wait = s.program.segment(kUpdate).code[i];
      wait.what = Record();
      wait.event = 1000;
      const bool found = !run_shadow(s.program, plan, s.target).ok();
      wait = code[i];
      missing += found;
      ++waits;
    }
  }
  EXPECT_GT(missing, 0.75 * waits) << waits;
}

TEST(Overlap, WhatOtherProcessesHaveComesJustEarlyEnough) {
  Streams s;
  s.of_two();
  const TensorId part = s.tensor("part", 3, Life::Run), x = s.tensor("x", 1, Life::Run);
  for (const char* name : {"a", "b", "c", "d"}) s.step(name, 2, {s.rw(x)});
  const TensorId whole = s.gather(part, 3);
  s.step("e", 2, {s.rw(x), s.r(whole)});
  s.load();
  EXPECT_EQ(s.seconds(), 13);
  s.hasten();
  EXPECT_EQ(s.text(), "a b exchange c d wait-exchange e");
  EXPECT_EQ(s.seconds(), 10);
  EXPECT_EQ(s.proved(), "");
}

TEST(Overlap, ASumOfGradientsIsOverWhenNobodyWaitsForIt) {
  Streams s;
  s.of_two();
  const TensorId home = s.tensor("home", 1, Life::Run), x = s.tensor("x", 1, Life::Run), made = s.tensor("gradient", 2);
  s.op(kUpdate, "make", {}, {s.w(made)}).launch()->flops = 2;
  s.exchange(3, {s.r(made)}, {s.a(home)});
  for (const char* name : {"a", "b", "c"}) s.step(name, 2, {s.rw(x)});
  s.step("d", 1, {s.r(home), s.rw(x)});
  s.load();
  s.hasten();
  EXPECT_EQ(s.text(), "make exchange a b wait-exchange c d");
  EXPECT_EQ(s.seconds(), 9);
  EXPECT_EQ(s.proved(), "");
}

// An exchange that could begin at once waits for the one before it, which other processes do before it too.
TEST(Overlap, ExchangesKeepTheirOrder) {
  Streams s;
  s.of_two();
  const TensorId part = s.tensor("part", 3, Life::Run), x = s.tensor("x", 1, Life::Run), late = s.tensor("late", 1, Life::Run);
  s.step("a", 4, {s.rw(x)});
  s.exchange(1, {s.r(x)}, {s.w(late)});
  const TensorId whole = s.gather(part, 3);
  s.step("b", 2, {s.rw(x), s.r(whole)});
  s.step("c", 1, {s.r(late), s.rw(x)});
  s.load();
  s.hasten();
  std::vector<size_t> inputs;
  for (const Instruction& i : s.code())
    if (i.exchanges()) inputs.push_back(static_cast<size_t>(i.inputs[0].tensor));
  EXPECT_EQ(inputs, (std::vector<size_t>{static_cast<size_t>(x), static_cast<size_t>(part)}));
  EXPECT_EQ(s.seconds(), 4 + 1 + 3 + 2 + 1);
  EXPECT_EQ(s.proved(), "");
}

// A copy that an exchange needs, and one that needs an exchange, on queues of their own.
TEST(Overlap, CopiesAndExchangesWaitForEachOther) {
  Streams s;
  s.of_two();
  const TensorId home = s.away("home", 2), sum = s.away("sum", 2), x = s.tensor("x", 1, Life::Run);
  for (const char* name : {"a", "b", "c"}) s.step(name, 2, {s.rw(x)});
  const TensorId part = s.bring(home, 0, 2);
  const TensorId whole = s.gather(part, 2);
  const TensorId added = s.tensor("added", 2);
  s.step("use", 1, {s.r(whole), s.rw(x)});
  s.exchange(2, {s.r(whole)}, {s.w(added)});
  s.take_back(added, sum, 0);
  for (const char* name : {"d", "e"}) s.step(name, 2, {s.rw(x)});
  s.load();
  s.hasten();
  EXPECT_EQ(s.proved(), "");
  EXPECT_EQ(s.seconds(), 3 * 2 + 1 + 2 * 2) << describe(s.program, kUpdate);
}

// Of two that need more room than there is, nothing begins before its place.
TEST(Overlap, ExchangesHoldWhatTheyMay) {
  for (const int64_t most : {int64_t{1000}, int64_t{0}}) {
    Streams s;
    s.of_two();
    const TensorId x = s.tensor("x", 1, Life::Run);
    for (int i = 0; i < 6; ++i) {
      const TensorId part = s.tensor("part", 2, Life::Run), whole = s.gather(part, 2);
      s.step("use", 2, {s.rw(x), s.r(whole)});
    }
    s.load();
    const int64_t before = s.peak();
    Transfers transfers = s.copies();
    transfers.restrain(most);
    s.program.segment(kUpdate).code = transfers.made();
    EXPECT_EQ(s.proved(), "");
    EXPECT_LE(s.peak(), before + most);
    EXPECT_EQ(s.seconds(), most ? 2 + 6 * 2 : 6 * 4);
  }
}

/// Instructions on queues of exchanges that must not be there.
TEST(Overlap, WhatRunsOnAQueueForExchanges) {
  Streams s;
  s.of_two();
  const TensorId part = s.tensor("part", 3, Life::Run), x = s.tensor("x", 1, Life::Run);
  s.step("a", 2, {s.rw(x)});
  const TensorId whole = s.gather(part, 1);
  s.step("b", 2, {s.rw(x), s.r(whole)});
  s.load();
  s.hasten();
  const Plan plan = make_plan(s.program, s.target);
  ASSERT_EQ(s.proved(), "");
  for (Instruction& i : s.program.segment(kUpdate).code) {
    if (i.name != "a" && !i.exchanges()) continue;
    const Instruction before = i;
    if (i.exchanges()) i.event = 0;
    else i.queue = 3;
    EXPECT_SAYS(s.proved(), before.exchanges() ? "without an event to wait for" : "which is for exchanges");
    i = before;
  }
  for (size_t t = 0; t < s.program.tensors.size(); ++t) {
    Plan shorter = plan;
    if (static_cast<TensorId>(t) != whole) continue;
    --shorter.placements[t].last;
    const Status status = check_plan(s.program, shorter, s.target);
    ASSERT_FALSE(status.ok());
    EXPECT_SAYS(status.error().cause, "but it lives from");
  }
}

class OverlapPass : public hand::Hand {};

TEST_F(OverlapPass, StaysWithinTheLimitOfTheClass) {
  target.queues = {Queue::Compute, Queue::In, Queue::Out};
  target.memories = {{"device", 64, false, true}, {"away", 64, true, false}};
  std::vector<galley_tensor> weights;
  const galley_tensor x = input("x", {64, 4});
  galley_tensor y = x;
  for (int i = 0; i < 6; ++i) {
    weights.push_back(parameter("w" + std::to_string(i), {64, 4}));
    graph.tensor(weights.back()).storage.placement = "away";
    y = node("y" + std::to_string(i), "mul", {y, weights.back()});
  }
  node("l", "loss", {y});
  train(weights);
  target.memories[1].in_bandwidth = target.memories[0].in_bandwidth;
  ASSERT_EQ(run({differentiate, order, place, alias}), "");
  const Program placed = c->program;
  const int64_t waiting = make_plan(placed, target).classes[0].planned;
  const auto planned = [&](int64_t capacity, int64_t limit) {
    c->program = placed;
    target.memories[0].capacity = capacity;
    options.memory_limit = limit;
    EXPECT_EQ(run({overlap}), "");
    const Plan plan = make_plan(c->program, target);
    const Status status = check_plan(c->program, plan, target);
    EXPECT_TRUE(status.ok()) << status.error().cause;
    return plan.classes[0].planned;
  };
  const int64_t free = planned(0, 0), middle = (waiting + free) / 2;
  EXPECT_GT(free, waiting);
  EXPECT_LE(planned(middle, 0), middle);
  EXPECT_EQ(planned(0, middle), planned(middle, 0));
  EXPECT_EQ(planned(waiting, 0), waiting);
  EXPECT_EQ(planned(1, 0), waiting) << "it does not fit anyway: that is for others to say";
  EXPECT_EQ(planned(free, free), free);
}

}  // namespace
}  // namespace galley
