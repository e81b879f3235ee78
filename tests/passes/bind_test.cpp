// Which kernel is bound, and what it gets beside its operands.
#include <algorithm>

#include "host/passes/unused_kernels.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Bind : public Hand {
 protected:
  Bind() { options.purpose = Purpose::Evaluate; }
  void loss(galley_tensor of) { node("l", "loss", {of}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)}); }
  const Instruction& eval(size_t i) const { return c->program.segment(SegmentKind::Eval).code.at(i); }
};

TEST_F(Bind, OfEqualPriorityTheFirstByName) {
  const galley_tensor x = input("x");
  loss(node("y", "add", {x, x}));
  ASSERT_EQ(run({order, place, bind}), "");
  EXPECT_STREQ(eval(0).launch()->kernel->name, "add.a");
  EXPECT_EQ(eval(0).workspace(), no_tensor);
}

TEST_F(Bind, TheHighestPriorityOfThoseThatServe) {
  const galley_tensor narrow = input("narrow", {4}), wide = input("wide", {8});
  loss(node("y", "mul", {narrow, narrow}));
  loss(node("z", "mul", {wide, wide}));
  ASSERT_EQ(run({order, place, bind}), "");
  EXPECT_STREQ(eval(0).launch()->kernel->name, "mul.any");
  EXPECT_STREQ(eval(2).launch()->kernel->name, "mul.wide");
  EXPECT_EQ(c->program.kernels,
            (std::vector<Program::Chosen>{{"loss", "loss.any", "hand"}, {"mul", "mul.any", "hand"}, {"mul", "mul.wide", "hand"}}));
}

TEST_F(Bind, EachInstructionHasAWorkspaceOfItsOwn) {
  const galley_tensor x = input("x", {8});
  loss(node("z", "mul", {node("y", "mul", {x, x}), x}));
  ASSERT_EQ(run({order, place, bind}), "");
  ASSERT_NE(eval(0).workspace(), no_tensor);
  ASSERT_NE(eval(1).workspace(), eval(0).workspace());
  const ProgramTensor& t = c->program.tensors[static_cast<size_t>(eval(1).workspace())];
  EXPECT_EQ(t.name, "workspace of z");
  EXPECT_EQ(t.bytes, 128);
  EXPECT_EQ(t.owner, Owner::Workspace);
  EXPECT_EQ(t.life, Life::Segment);
}

TEST_F(Bind, AKernelThatWantsMoreThanTheTargetGivesIsPassedOver) {
  target.workspace_budget = 127;
  const galley_tensor x = input("x", {8});
  loss(node("y", "mul", {x, x}));
  ASSERT_EQ(run({order, place, bind}), "");
  EXPECT_STREQ(eval(0).launch()->kernel->name, "mul.any");
}

TEST_F(Bind, NoKernelSaysForWhatAndWhyNot) {
  loss(node("y", "idle", {input("x", {2, 3})}));
  EXPECT_EQ(run({order, place, bind}), "no kernel of device 'hand' (any) does op 'idle' of node 'y' on (2, 3)");
}

TEST_F(Bind, KernelsThatWereAskedForAndNotChosen) {
  for (const auto& plugin : plugins->all()) ASSERT_TRUE(plugins->load(*plugin).ok());
  const auto lines = [&](std::vector<std::string> asked, std::vector<std::string> used = {}) {
    return unused_kernels(*plugins, target, c->program, asked, used);
  };
  EXPECT_EQ(lines({}), std::vector<std::string>());
  EXPECT_EQ(lines({"claims"}), std::vector<std::string>{"'kernels' names the plugin 'claims', but the plan has none of its kernels for "
                                                        "device 'hand': it has no kernels"});
  // No plugin has the ops of these tests.
  const std::vector<std::string> of_hand = lines({}, {"hand"});
  EXPECT_EQ(std::ranges::count(of_hand, "plugin 'hand': kernel 'mul.wide' is for the op 'mul', which no plugin provides"), 1);
  EXPECT_EQ(std::ranges::count(of_hand, "plugin 'hand': kernel 'add.square' is for the op 'square', which no plugin provides"), 1);
  EXPECT_EQ(std::ranges::count_if(of_hand, [](const std::string& line) { return line.find("pair_pack") != std::string::npos; }), 0);
  EXPECT_EQ(std::ranges::count_if(of_hand, [](const std::string& line) { return line.find("'kernels'") != std::string::npos; }), 0);
  EXPECT_EQ(lines({"hand"}).size(), of_hand.size() + 1);
  target.device = "hnad";
  const std::vector<std::string> elsewhere = lines({"hand"});
  EXPECT_EQ(std::ranges::count(elsewhere,
                               "'kernels' names the plugin 'hand', but the plan has none of its kernels for device 'hnad': its "
                               "kernels are for the device 'cpu', 'hand'"),
            1);
  EXPECT_EQ(std::ranges::count(elsewhere,
                               "plugin 'hand': kernel 'mul.wide' is for the device 'hand', which no plugin provides; did you mean 'hnad'?"),
            1);
}

// The copy of a gradient would have to add from the second micro-batch on, which this device's copy cannot.
TEST_F(Bind, AKernelMustServeTheHeavierOfTwoAccesses) {
  const galley_tensor w = parameter("w");
  const galley_tensor y = node("y", "add", {w, w});
  loss(y);
  train({w});
  options.purpose = Purpose::Gradients;
  c->decisions.micro_batches = 2;
  EXPECT_EQ(run({differentiate, order, place, bind}),
            "no kernel of device 'hand' (any) does op 'copy' of node 'y.copy.4' on (4); copy.writes: dtypes or shapes");
}

TEST_F(Bind, KernelsOfAPluginThatNobodyAskedForAreNamed) {
  const galley_tensor x = input("x");
  loss(node("y", "add", {x, x}));
  ASSERT_EQ(run({order, place}), "");
  CompileOptions strangers = options;
  strangers.built_in = {};
  const auto chosen = [&] { return *Kernels(*plugins, {}, target, strangers, 4).choose(eval(0), c->program.tensors).value(); };
  EXPECT_EQ(chosen().kernel, nullptr);
  EXPECT_EQ(chosen().refusals,
            "; add.a: the recipe does not ask for kernels of plugin 'hand'; add.b: the recipe does not ask for kernels of plugin 'hand'");
  strangers.kernels = {"hand"};
  ASSERT_NE(chosen().kernel, nullptr);
  EXPECT_STREQ(chosen().kernel->name, "add.a");
}

}  // namespace
}  // namespace galley::hand
