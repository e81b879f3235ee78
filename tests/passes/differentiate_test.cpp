// Backward graphs of small forward graphs.
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Differentiate : public Hand {
 protected:
  std::string run() {
    Status done = differentiate(*c);
    if (done) done = verify("differentiate");
    return cause(done);
  }
  /// The gradient rule of an op that is the whole model.
  void refuses(const char* op, const std::string& why) {
    const galley_tensor w = parameter("w");
    loss(node("y", op, {w}));
    train({w});
    const Status status = differentiate(*c);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().exit, Exit::Plugin);
    for (const std::string& part : {std::string("op '") + op + "', node 'y'", why})
      EXPECT_NE(status.error().cause.find(part), std::string::npos) << status.error().cause;
  }
  void loss(galley_tensor x) { node("l", "loss", {x}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)}); }
};

TEST_F(Differentiate, WhatIsTrainedAndNothingElse) {
  const galley_tensor x = input("x"), w = parameter("w"), frozen = parameter("frozen");
  loss(node("z", "mul", {node("y", "mul", {x, frozen}), w}));
  train({w});
  EXPECT_EQ(run(), "");
  EXPECT_EQ(text(Section::Backward), "mul(z, z) -> l.mul.4\nmul(l.mul.4, y) -> grad.w\n");
  EXPECT_EQ(graph.tensor(w).gradient, graph.find("grad.w"));
  EXPECT_EQ(graph.tensor(frozen).gradient, 0u);
}

TEST_F(Differentiate, TwoReadersAddIntoOneBuffer) {
  const galley_tensor x = input("x"), w = parameter("w");
  loss(node("z", "mul", {node("y", "mul", {x, w}), w}));
  train({w});
  EXPECT_EQ(run(), "");
  EXPECT_EQ(text(Section::Backward),
            "mul(z, z) -> l.mul.4\nmul(l.mul.4, w) -> z.mul.5\nmul(l.mul.4, y) -> grad.w\nmul(z.mul.5, x) -> +grad.w\n");
}

TEST_F(Differentiate, AGradientThatTwoWaitForIsNotAddedInto) {
  // Both operands of `add` get the same tensor; x is read by `mul` as well, whose contribution must not land in w's gradient.
  const galley_tensor w = parameter("w"), v = parameter("v");
  const galley_tensor a = node("a", "mul", {w, w}), b = node("b", "mul", {v, v});
  const galley_tensor m = node("m", "mul", {a, b});
  loss(node("s", "add", {node("t", "add", {a, b}), m}));
  train({w, v});
  EXPECT_EQ(run(), "");
  const std::string said = text(Section::Backward);
  EXPECT_EQ(said.find("+l.mul"), std::string::npos) << said;
}

TEST_F(Differentiate, ALossThatDoesNotDependOnIt) {
  const galley_tensor x = input("x"), w = parameter("w"), idle = parameter("idle");
  loss(node("y", "mul", {x, w}));
  train({w, idle});
  EXPECT_EQ(run(), "'idle' is to be trained, but the loss does not depend on it");
}

TEST_F(Differentiate, ARuleThatHandsOutAnotherShape) { refuses("wide", "hands out f32(1) for input 0 ('w'), which is f32(4)"); }
TEST_F(Differentiate, ARuleThatHandsOutNoTensor) { refuses("stray", "hands out something that is no tensor for input 0 ('w')"); }
TEST_F(Differentiate, ARuleThatWritesNothing) { refuses("idle", "none of its nodes writes it"); }

}  // namespace
}  // namespace galley::hand
