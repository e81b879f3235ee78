// Which of two exchanges comes first, and which are left out.
#include "host/passes/exchange_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "tests/plan/little.hpp"

namespace galley {
namespace {

/// A micro-batch of one of two processes. A byte of a whole tensor takes half a second on the link, and a FLOP a second.
struct Process : Little {
  Target target;
  TensorId x;

  Process() {
    program.ranks = program.lanes = program.micro_batches = 2;
    target.peaks = {{"f32", 1}};
    target.memories = {{"host", 64, true, true}};
    target.links = {{"network", 0, 1, 0}};
    x = tensor("x", 1, Life::Run);
  }
  std::vector<Instruction>& code() { return program.segment(kMicro).code; }
  void exchange(const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs) {
    LaunchNode& node = op(kMicro, name, std::move(inputs), std::move(outputs)).launch()->nodes[0];
    node.op = exchange_op();
    node.attrs.set("ranks", program.ranks);
    node.attrs.set("ends", std::vector<int64_t>{1, 2});
  }
  void step(const std::string& name, double seconds, std::vector<Operand> operands) {
    op(kMicro, name, std::move(operands), {}).launch()->flops = seconds;
  }
  TensorId weight(const std::string& name, int64_t half) { return tensor(name, half, Life::Run); }
  TensorId gather(TensorId part) {
    const ProgramTensor half = program.tensors[static_cast<size_t>(part)];
    const TensorId whole = tensor("whole " + half.name, 2 * half.shape[0]);
    exchange("gather " + half.name, {r(part)}, {w(whole)});
    return whole;
  }
  /// Makes a gradient and adds it up.
  void sum(const std::string& name, int64_t count, double seconds) {
    const TensorId gradient = tensor("gradient " + name, count), home = tensor("home " + name, count / 2, Life::Window);
    step("make " + name, seconds, {r(x), w(gradient)});
    exchange("sum " + name, {r(gradient)}, {wa(home)});
  }
  std::string order() {
    std::string out;
    for (const Instruction& i : code())
      if (i.exchanges()) out += (out.empty() ? "" : ", ") + i.name;
    return out;
  }
  void in_order() { order_exchanges(program, target, code()); }
};

/// Sums after it, so that what waits is little.
void many_more(Process& p) {
  for (int k = 0; k < 160; ++k) p.sum("other", 8, 100);
}
std::string without_others(const std::string& order) { return order.substr(0, order.find(", sum other")); }

// The sum of a gradient takes 16 seconds, and the next weight is read after 4.
TEST(ExchangeOrder, AWeightComesBeforeASumThatWouldKeepItWaiting) {
  for (const double seconds : {4.0, 40.0}) {
    Process p;
    const TensorId first = p.gather(p.weight("a", 1));
    p.step("a", 1, {p.rw(p.x), p.r(first)});
    p.sum("a", 8, 1);
    p.step("between", seconds, {p.rw(p.x)});
    const TensorId second = p.gather(p.weight("b", 1));
    p.step("b", 1, {p.rw(p.x), p.r(second)});
    many_more(p);
    const size_t all = p.code().size();
    p.in_order();
    EXPECT_EQ(without_others(p.order()), seconds < 10 ? "gather a, gather b, sum a" : "gather a, sum a, gather b");
    EXPECT_EQ(p.code().size(), all);
    const size_t made = p.code()[3].name == "gather b" ? 4u : 3u;
    EXPECT_EQ(p.code()[made].name, "sum a") << "a gather comes after what makes the gradient, and before its sum";
  }
}

// What waits holds its gradient.
TEST(ExchangeOrder, LittleWaits) {
  Process p;
  for (int k = 0; k < 3; ++k) {
    p.sum("a", 8, 1);
    const TensorId whole = p.gather(p.weight("w", 1));
    p.step("b", 1, {p.rw(p.x), p.r(whole)});
  }
  p.in_order();
  EXPECT_EQ(p.order(), "sum a, gather w, sum a, gather w, sum a, gather w") << "of 96 bytes in sums, 1 may wait";
  many_more(p);
  p.in_order();
  EXPECT_EQ(without_others(p.order()), "gather w, sum a, gather w, sum a, gather w, sum a") << "of 5,216 bytes, 40 may";
}

TEST(ExchangeOrder, WhatIsWrittenHereStays) {
  for (const bool written : {true, false}) {
    Process p;
    const TensorId part = p.weight("w", 1);
    p.sum("a", 8, 1);
    p.step("change", 1, {written ? p.rw(part) : p.r(part)});
    const TensorId whole = p.gather(part);
    p.step("b", 1, {p.rw(p.x), p.r(whole)});
    many_more(p);
    p.in_order();
    EXPECT_EQ(without_others(p.order()), written ? "sum a, gather w" : "gather w, sum a");
  }
}

// A gather of a tensor that is used before its place, by an instruction that shares its bytes.
TEST(ExchangeOrder, NothingIsOverwritten) {
  Process p;
  const TensorId part = p.weight("w", 1), shared = p.tensor("shared", 2);
  p.sum("a", 8, 1);
  p.step("before", 1, {p.rw(p.x), p.w(shared)});
  p.exchange("gather w", {p.r(part)}, {p.w(shared)});
  p.step("after", 1, {p.rw(p.x), p.r(shared)});
  many_more(p);
  p.in_order();
  EXPECT_EQ(without_others(p.order()), "sum a, gather w");
}

TEST(ExchangeOrder, PiecesOfAHeadShareItsWeight) {
  Process p;
  const TensorId part = p.weight("head", 2);
  for (int k = 0; k < 3; ++k) {
    const TensorId whole = p.gather(part);
    p.step("piece", 100, {p.rw(p.x), p.r(whole)});
  }
  p.sum("a", 8, 1);
  const TensorId again = p.gather(part);
  p.step("last", 1, {p.rw(p.x), p.r(again)});
  share_gathers(p.program, p.target, p.code());
  EXPECT_EQ(p.order(), "gather head, sum a, gather head") << "an exchange between them ends it: nothing lies there for long";
  std::vector<TensorId> read;
  for (const Instruction& i : p.code())
    if (i.name == "piece" || i.name == "last") read.push_back(i.inputs[1].tensor);
  const TensorId first = p.code()[0].outputs[0].tensor;
  EXPECT_EQ(read, (std::vector<TensorId>{first, first, first, again}));
}

// A block is recomputed, then its gradients are made; another one between them, or enough arithmetic, and its weight is gathered again.
TEST(ExchangeOrder, ABlockKeepsItsWeightsWhereTheLinkIsSlow) {
  for (const auto& [seconds, between, gathers] : {std::tuple(1.0, false, 2), std::tuple(1.0, true, 3), std::tuple(100.0, false, 3)}) {
    Process p;
    const TensorId part = p.weight("w", 2), other = p.weight("other", 2);
    const auto in_block = [&](int64_t block, TensorId weight) {
      const TensorId whole = p.gather(weight);
      p.step("reads", seconds, {p.rw(p.x), p.r(whole)});
      p.code().back().launch()->nodes[0].block = block;
    };
    in_block(7, part);
    if (between) in_block(6, other);
    else in_block(7, other);
    in_block(7, part);
    share_gathers(p.program, p.target, p.code());
    EXPECT_EQ(std::ranges::count_if(p.code(), &Instruction::exchanges), gathers) << p.order();
  }
}

TEST(ExchangeOrder, WhatAReaderChangesIsGatheredAgain) {
  Process p;
  const TensorId part = p.weight("head", 2), first = p.gather(part);
  p.step("changes", 1, {p.rw(first)});
  const TensorId second = p.gather(part);
  p.step("reads", 1, {p.rw(p.x), p.r(second)});
  share_gathers(p.program, p.target, p.code());
  EXPECT_EQ(p.order(), "gather head, gather head");
}

}  // namespace
}  // namespace galley
