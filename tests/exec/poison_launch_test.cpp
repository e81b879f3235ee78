// Poison mode around launches of several nodes: groups and chains that behave keep their numbers, others are found.
#include <gtest/gtest.h>

#include "galley/cpp/groups.hpp"
#include "tests/exec/small.hpp"

namespace galley {
namespace {

using sdk::Node;
using sdk::Nodes;
using small::Builder;
using small::Running;

enum class Fault { None, LeavesOut, WritesBeyond, WritesInput, ReadsBeyond, ReadsOutput, LeavesBetween, ReadsBetween, ReadsWorkspace };

/// Nodes y = x + 1; with two links, s = x + 1 and y = 2 s. The fault is the last node's or chain's.
template <Fault fault, size_t links>
class Ones {
 public:
  static void query(const Nodes&, const galley_target&, galley_kernel_plan&) {}
  Ones(const Nodes& nodes, const galley_kernel_setup& setup) : nodes_(nodes), workspace_(static_cast<float*>(setup.workspace)) {}
  void run() {
    for (size_t k = 0; k < nodes_.size(); k += links)
      one(nodes_[k], nodes_[k + links - 1], k + links == nodes_.size() ? fault : Fault::None);
  }

 private:
  void one(const Node& first, const Node& last, Fault wrong) {
    auto* x = static_cast<float*>(first.in(0).data);
    auto* y = static_cast<float*>(last.out(0).data);
    auto* s = links > 1 ? static_cast<float*>(first.out(0).data) : nullptr;
    const int64_t n = galley_operand_count(&first.in(0));
    for (int64_t i = 0; i < n; ++i) {
      float one = x[i] + 1;
      if (wrong == Fault::ReadsBetween && s) one = s[i];
      if (s && wrong != Fault::LeavesBetween) s[i] = one;
      const float out = links > 1 ? 2 * one : one;
      if (wrong == Fault::LeavesOut && i == n - 1) break;
      y[i] = wrong == Fault::ReadsOutput ? y[i] + out : out;
    }
    if (wrong == Fault::WritesBeyond) y[n] = 1;
    if (wrong == Fault::WritesInput) x[0] = 0;
    if (wrong == Fault::ReadsBeyond) y[0] = x[n];
    if (wrong == Fault::ReadsWorkspace) y[0] = workspace_[0];
  }
  Nodes nodes_;
  float* workspace_;
};

template <Fault fault, size_t links>
const galley_kernel& ones() {
  static const galley_kernel kernel = sdk::nodes_kernel<Ones<fault, links>>("ones", links > 1 ? "one>two" : "one");
  return kernel;
}

Operand between(Operand operand, bool kept, uint32_t inner) {
  operand.inner = inner;
  if (!kept) operand.tensor = no_tensor;
  return operand;
}

/// Two of them in one launch, over numbers that another launch has left, beside something that holds 7s. `kept`: what lies between the
/// links has memory.
struct LaunchOfTwo {
  explicit LaunchOfTwo(const galley_kernel& kernel, size_t links, bool kept) {
    const auto life = Life::Segment;
    std::vector<LaunchNode> nodes;
    std::vector<Operand> inputs, outputs;
    const auto node = [&](const std::string& name) {
      nodes.push_back({name, nullptr, {}, 0, 0, -1, {nodes.size(), 1}, {nodes.size(), 1}});
    };
    for (const char* name : {"a", "b"}) {
      const std::string n = name;
      const TensorId x = b.tensor("x" + n, {16}, life), s = b.tensor("s" + n, {16}, life), y = b.tensor("y" + n, {16});
      const TensorId behind = b.tensor("behind" + n, {16});
      b.kernel(SegmentKind::Load, small::fill, {}, {b.write(behind)}, 7);
      b.kernel(SegmentKind::Eval, small::fill, {}, {b.write(x)}, n == "a" ? 3 : 4);
      inputs.push_back(b.read(x));
      if (links > 1) {
        const Operand write = b.write(s);
        outputs.push_back(between(write, kept, kept ? 0 : 1));
        inputs.push_back(between(b.read(s), kept, 1));
        node("one " + n);
      }
      outputs.push_back(b.write(y));
      node("last " + n);
      made.push_back(y);
    }
    const TensorId work = b.tensor("work", {16}, life);
    Launch& launch = *b.kernel(SegmentKind::Eval, kernel, inputs, outputs).launch();
    launch.nodes = nodes;
    launch.links = links;
    launch.workspace = work;
    // The inputs are dead by now.
    b.kernel(SegmentKind::Eval, small::fill, {}, {b.write(b.tensor("after", {16}, life))}, 5);
  }
  Builder b;
  std::vector<TensorId> made;
};

/// What poison says of it.
std::string said(const galley_kernel& kernel, size_t links, bool kept = true) {
  const LaunchOfTwo launch(kernel, links, kept);
  for (const Poison poison : {Poison::No, Poison::Yes}) {
    Running r(launch.b, false, poison);
    EXPECT_TRUE(r.executor) << r.error.cause;
    Status status = r.executor->load();
    if (status.ok()) status = r.executor->run(SegmentKind::Eval);
    if (status.ok()) status = r.executor->synchronize();
    if (!status.ok()) return poison == Poison::No ? "without poison: " + status.error().cause : status.error().cause;
    if (poison == Poison::Yes) {
      EXPECT_EQ(r.values(launch.made[0]), std::vector<float>(16, links > 1 ? 8 : 4));
      EXPECT_EQ(r.values(launch.made[1]), std::vector<float>(16, links > 1 ? 10 : 5));
    }
  }
  return "";
}

#define EXPECT_SAYS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << "says: " << (text)

TEST(PoisonOfLaunches, GroupsAndChainsThatBehave) {
  EXPECT_EQ(said(ones<Fault::None, 1>(), 1), "");
  EXPECT_EQ(said(ones<Fault::None, 2>(), 2, true), "");
  EXPECT_EQ(said(ones<Fault::None, 2>(), 2, false), "");
}

TEST(PoisonOfLaunches, AMemberThatDoesWhatItMustNot) {
  EXPECT_SAYS(said(ones<Fault::LeavesOut, 1>(), 1), "element 15 of 'yb' depends on the poison");
  EXPECT_SAYS(said(ones<Fault::WritesBeyond, 1>(), 1), "it wrote outside its operands");
  EXPECT_SAYS(said(ones<Fault::WritesBeyond, 1>(), 1), "0 after the end of 'yb'");
  EXPECT_SAYS(said(ones<Fault::WritesInput, 1>(), 1), "it wrote to 'xb', which it may only read");
  EXPECT_SAYS(said(ones<Fault::ReadsBeyond, 1>(), 1), "element 0 of 'yb' depends on the poison");
  EXPECT_SAYS(said(ones<Fault::ReadsOutput, 1>(), 1), "element 0 of 'yb' depends on the poison");
  EXPECT_SAYS(said(ones<Fault::ReadsWorkspace, 1>(), 1), "element 0 of 'yb' depends on the poison");
}

TEST(PoisonOfLaunches, AChainThatDoesNotMakeWhatLiesBetween) {
  EXPECT_SAYS(said(ones<Fault::LeavesBetween, 2>(), 2), "element 0 of 'sb' depends on the poison");
  EXPECT_SAYS(said(ones<Fault::ReadsBetween, 2>(), 2), "element 0 of 'sb' depends on the poison");
  for (const bool kept : {true, false}) EXPECT_SAYS(said(ones<Fault::LeavesOut, 2>(), 2, kept), "element 15 of 'yb' depends on the poison");
}

TEST(PoisonOfLaunches, AnInputWhoseLifeIsOver) {
  const LaunchOfTwo launch(ones<Fault::None, 2>(), 2, true);
  const auto ran = [&](const Plan& plan) {
    auto made = Executor::create(launch.b.program, plan, small::target(), small::device(false), {.watching = watching(Poison::Yes)});
    EXPECT_TRUE(made.ok());
    Status status = (*made)->load();
    if (status.ok()) status = (*made)->run(SegmentKind::Eval);
    return status.ok();
  };
  const Plan good = launch.b.plan();
  EXPECT_TRUE(ran(good));
  for (size_t t = 0; t < launch.b.program.tensors.size(); ++t) {
    if (launch.b.program.tensors[t].name.front() != 'x') continue;
    Plan early = good;
    --early.placements[t].last;
    EXPECT_FALSE(ran(early)) << launch.b.program.tensors[t].name;
  }
}

}  // namespace
}  // namespace galley
