// Which nodes become one launch. The device "hand" has a kernel for groups of `square` and one for the chain add>square.
#include "host/plan/plan.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Fuse : public Hand {
 protected:
  Fuse() { options.purpose = Purpose::Evaluate; }
  void loss(galley_tensor of) { node("l", "loss", {of}, Section::Forward, {*graph.scalar(GALLEY_SCALAR_LOSS)}); }
  /// The kernels that eval runs.
  std::string kernels() const {
    std::string out;
    for (const Instruction& i : c->program.segment(SegmentKind::Eval).code)
      if (i.kernel) out += (out.empty() ? "" : " ") + std::string(i.kernel->name);
    return out;
  }
  const Instruction& first() const {
    for (const Instruction& i : c->program.segment(SegmentKind::Eval).code)
      if (!i.parts.empty()) return i;
    return c->program.segment(SegmentKind::Eval).code.front();
  }
};

TEST_F(Fuse, NodesOfOneOpThatDoNotDependOnEachOtherAreAGroup) {
  const galley_tensor x = input("x"), y = input("y");
  loss(node("z", "mul", {node("sx", "square", {x}), node("sy", "square", {y})}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "square.group mul.any loss.any");
  EXPECT_EQ(first().name, "sx and 1 more");
  ASSERT_EQ(first().parts.size(), 2u);
  EXPECT_EQ(first().parts[1].name, "sy");
}

TEST_F(Fuse, WhatReadsTheFirstOneStaysBehindIt) {
  const galley_tensor sx = node("sx", "square", {input("x")});
  loss(node("sy", "square", {node("y", "mul", {sx, sx})}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "square.any mul.any square.any loss.any");
}

TEST_F(Fuse, WhatNothingElseReadsHasNoMemory) {
  const galley_tensor x = input("x");
  loss(node("q", "square", {node("s", "add", {x, x})}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "add.square loss.any");
  const Instruction& chain = first();
  EXPECT_EQ(op_text(chain), "add>square");
  EXPECT_FALSE(chain.outputs[0].present());
  EXPECT_FALSE(chain.inputs[2].present());
  EXPECT_EQ(chain.outputs[0].inner, chain.inputs[2].inner);
  EXPECT_EQ(chain.inputs[2].shape, Shape{4});
  for (const ProgramTensor& t : c->program.tensors) EXPECT_NE(t.name, "s");
  EXPECT_EQ(c->program.kernels, (std::vector<Program::Chosen>{{"add>square", "add.square", "hand"}, {"loss", "loss.any", "hand"}}));
}

TEST_F(Fuse, WhatIsReadLaterIsWritten) {
  const galley_tensor x = input("x"), s = node("s", "add", {x, x});
  loss(node("q", "square", {s}));
  loss(node("m", "mul", {s, x}));
  ASSERT_EQ(run({order, place, bind, fuse, alias}), "");
  EXPECT_EQ(kernels(), "add.square loss.any mul.any loss.any");
  EXPECT_TRUE(first().outputs[0].present());
  EXPECT_EQ(first().outputs[0].tensor, first().inputs[2].tensor);
  EXPECT_EQ(first().outputs[0].inner, 0u);
  EXPECT_EQ(first().inputs[2].inner, 1u);
}

TEST_F(Fuse, NothingRaisesThePeak) {
  const galley_tensor x = input("x", {64}), y = input("y", {64});
  const galley_tensor a = node("a", "mul", {x, y}), b = node("b", "mul", {y, x});
  loss(node("q", "square", {node("s", "add", {a, b})}));
  const auto peaks = [&](const std::vector<Status (*)(Compilation&)>& passes) {
    c->program = {};
    EXPECT_EQ(run(passes), "");
    return plan_peaks(outline_of(c->program), target);
  };
  const std::vector<int64_t> apart = peaks({order, place, bind, alias}), joined = peaks({place, bind, fuse, alias});
  for (size_t memory = 0; memory < apart.size(); ++memory) EXPECT_LE(joined[memory], apart[memory]);
}

}  // namespace
}  // namespace galley::hand
