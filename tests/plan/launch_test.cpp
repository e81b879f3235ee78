// The shadow's own test on launches of several nodes: programs that are wrong in one place must be rejected.
#include <gtest/gtest.h>

#include "galley/op.h"
#include "host/proofs/shadow.hpp"
#include "tests/plan/little.hpp"

namespace galley {
namespace {

/// x and y are made; a group squares both; two chains, each a sum and its norm, are one launch, and the second one's sum has no memory;
/// all is read at the end.
struct Launches : Little {
  TensorId x = tensor("x", 50), y = tensor("y", 50), sx = tensor("sx", 50), sy = tensor("sy", 50), sum = tensor("sum", 50),
           n = tensor("n", 50), m = tensor("m", 50);
  Launches() {
    op(kMicro, "make x", {}, {w(x)});
    op(kMicro, "make y", {}, {w(y)});
    launch(op(kMicro, "squares", {r(x), r(y)}, {w(sx), w(sy)}), {{1, 1}, {1, 1}}, 1);
    launch(op(kMicro, "norms", {r(sx), r(x), between(sum), r(sy), r(y), between(no_tensor)}, {w(sum), w(n), between(no_tensor), w(m)}),
           {{2, 1}, {1, 1}, {2, 1}, {1, 1}}, 2);
    op(kMicro, "read", {r(sum), r(n), r(m)}, {});
  }
  Operand between(TensorId id) const {
    Operand o;
    o.tensor = id;
    o.shape = {50};
    o.inner = 1;
    return o;
  }
  static void launch(Instruction& i, const std::vector<std::pair<size_t, size_t>>& operands, size_t links) {
    std::vector<LaunchNode>& nodes = i.launch()->nodes;
    nodes.clear();
    for (const auto& [inputs, outputs] : operands)
      nodes.push_back({i.name + " " + std::to_string(nodes.size()), nullptr, {}, 0, 0, -1, {0, inputs}, {0, outputs}});
    i.launch()->links = links;
    put_in_order(i);
  }
  /// The operands of each node begin after those of the nodes before it.
  static void put_in_order(Instruction& i) {
    size_t inputs = 0, outputs = 0;
    for (LaunchNode& node : i.launch()->nodes) {
      node.inputs.first = std::exchange(inputs, inputs + node.inputs.count);
      node.outputs.first = std::exchange(outputs, outputs + node.outputs.count);
    }
  }
  Instruction& at(size_t i) { return program.segment(kMicro).code[i]; }
  Instruction& squares() { return at(2); }
  Instruction& norms() { return at(3); }
};

TEST(ShadowOfLaunches, AcceptsGroupsAndChains) { EXPECT_EQ(verdict(Launches().program), ""); }

TEST(ShadowOfLaunches, MembersOfAGroupThatDependOnEachOther) {
  Launches l;
  l.squares().inputs[1] = l.r(l.sx);
  EXPECT_SAYS(verdict(l.program), "micro[2] 'squares' has operands that overlap: 'sx'");
}

TEST(ShadowOfLaunches, MembersOfAGroupThatWriteTheSame) {
  Launches l;
  l.squares().outputs[1] = l.w(l.sx);
  EXPECT_SAYS(verdict(l.program), "micro[2] 'squares' has operands that overlap: 'sx'");
}

TEST(ShadowOfLaunches, AMemberBeforeItsInputIsWritten) {
  Launches l;
  std::swap(l.at(1), l.at(2));
  EXPECT_SAYS(verdict(l.program), "micro[1] 'squares' reads 'y' bytes [0, 200), which nothing has written");
}

TEST(ShadowOfLaunches, AMemberBehindItsReader) {
  Launches l;
  std::swap(l.at(2), l.at(3));
  EXPECT_SAYS(verdict(l.program), "micro[2] 'norms' reads 'sx' bytes [0, 200), which nothing has written");
}

TEST(ShadowOfLaunches, WhatHasNoMemoryIsReadLater) {
  Launches l;
  l.norms().outputs[0].tensor = l.norms().inputs[2].tensor = no_tensor;
  l.norms().outputs[0].inner = 1;
  EXPECT_SAYS(verdict(l.program), "micro[4] 'read' reads 'sum' bytes [0, 200), which nothing has written");
}

TEST(ShadowOfLaunches, WhatHasNoMemoryIsReadByAnotherChain) {
  Launches l;
  std::swap(l.norms().inputs[2], l.norms().inputs[5]);
  EXPECT_SAYS(verdict(l.program),
              "micro[3] 'norms': 'norms 1' reads an operand without memory as what lies between links of its chain, but no link "
              "before it makes it");
}

TEST(ShadowOfLaunches, LinksInAnotherOrder) {
  Launches l;
  Instruction& i = l.norms();
  std::swap(i.launch()->nodes[0], i.launch()->nodes[1]);
  Launches::put_in_order(i);
  std::rotate(i.inputs.begin(), i.inputs.begin() + 2, i.inputs.begin() + 3);
  std::swap(i.outputs[0], i.outputs[1]);
  EXPECT_SAYS(verdict(l.program), "micro[3] 'norms': 'norms 1' reads 'sum' as what lies between links of its chain");
}

TEST(ShadowOfLaunches, SomethingElseSaidToLieBetween) {
  // Where an operand is taken for what lies between, nobody would look whether it was written.
  Launches l;
  l.norms().inputs[1].inner = 1;
  EXPECT_SAYS(verdict(l.program), "micro[3] 'norms': 'norms 0' reads 'x' as what lies between links of its chain");
  l = Launches();
  l.norms().inputs[2].offset = 4;
  l.norms().inputs[2].shape = {49};
  EXPECT_SAYS(verdict(l.program), "micro[3] 'norms': 'norms 1' reads 'sum' as what lies between");
  l = Launches();
  l.norms().outputs[0].access = l.norms().outputs[0].later = GALLEY_READ;
  EXPECT_SAYS(verdict(l.program), "micro[3] 'norms': 'norms 1' reads 'sum' as what lies between");
  l = Launches();
  l.at(4).inputs[0].inner = 1;
  EXPECT_SAYS(verdict(l.program), "micro[4] 'read': 'read' reads 'sum' as what lies between");
}

TEST(ShadowOfLaunches, ALinkThatChangesWhatLiesBetween) {
  Launches l;
  l.norms().inputs[2].access = l.norms().inputs[2].later = GALLEY_READ_WRITE;
  EXPECT_SAYS(verdict(l.program), "micro[3] 'norms': 'norms 1' reads 'sum' as what lies between");
}

TEST(ShadowOfLaunches, WhatLiesBetweenReadAsAnInput) {
  // Without the mark the launch would need it before it runs.
  Launches l;
  l.norms().inputs[2].inner = 0;
  EXPECT_SAYS(verdict(l.program), "micro[3] 'norms' has operands that overlap: 'sum'");
}

TEST(ShadowOfLaunches, NodesWithOtherOperands) {
  Launches l;
  ++l.norms().launch()->nodes[2].inputs.count;
  EXPECT_SAYS(verdict(l.program),
              "micro[3] 'norms': the operands of 'norms 3' begin at 5 and 3, and those of the nodes before it end at 6 and 3");
  l.put_in_order(l.norms());
  EXPECT_SAYS(verdict(l.program), "micro[3] 'norms' has nodes with 7 inputs and 4 outputs, and 6 and 4 operands");
  l = Launches();
  l.norms().launch()->links = 3;
  EXPECT_SAYS(verdict(l.program), "micro[3] 'norms' has 4 nodes in chains of 3");
  l = Launches();
  l.at(0).launch()->links = 2;
  EXPECT_SAYS(verdict(l.program), "micro[0] 'make x' has 1 nodes in chains of 2");
  l.at(0).launch()->nodes.clear();
  EXPECT_SAYS(verdict(l.program), "micro[0] 'make x' has 0 nodes in chains of 2");
}

TEST(ShadowOfLaunches, ALifeThatEndsBeforeTheLaunch) {
  const Launches l;
  const Plan good = make_plan(l.program, little_target());
  for (const TensorId id : {l.x, l.y, l.sx, l.sy}) {
    Plan plan = good;
    --plan.placements[static_cast<size_t>(id)].last;
    EXPECT_FALSE(check_plan(l.program, plan, little_target()).ok());
  }
}

}  // namespace
}  // namespace galley
