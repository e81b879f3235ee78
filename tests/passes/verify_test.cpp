// The verifier takes what is right, and names what is not.
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Verify : public Hand {
 protected:
  /// x · w, its loss, and for w a gradient and an update.
  Verify() {
    x = input("x");
    w = parameter("w");
    y = node("y", "mul", {x, w});
    node("l", "loss", {y}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
    train({w});
    g = tensor("grad.w", {4}, GALLEY_KIND_GRADIENT);
    graph.tensor(w).gradient = g;
  }
  void backward() { node("dw", "mul", {y, x}, Section::Backward, {g}); }
  galley_tensor x, w, y, g;
};

void says(const std::string& said, std::initializer_list<const char*> parts) {
  for (const char* part : parts) EXPECT_NE(said.find(part), std::string::npos) << "'" << part << "' is not in: " << said;
}

TEST_F(Verify, WhatIsRight) {
  EXPECT_EQ(verified(), "");
  backward();
  node("more", "mul", {x, x}, Section::Backward, {g}, {true});
  node("u", "step", {w, g}, Section::Update, {});
  EXPECT_EQ(verified(), "");
}

TEST_F(Verify, AGradientThatNobodyWrites) {
  node("other", "mul", {x, x}, Section::Backward);
  says(verified(), {"after pass 'test'", "'w'", "no node writes its gradient"});
}

TEST_F(Verify, AGradientIsNotReadBeforeItIsWritten) {
  node("early", "mul", {g, x}, Section::Backward);
  backward();
  says(verified(), {"'early'", "'grad.w'", "no node has written"});
}

TEST_F(Verify, ASecondWriterHasToAdd) {
  backward();
  node("again", "mul", {x, x}, Section::Backward, {g});
  says(verified(), {"'again'", "overwrites 'grad.w'", "'dw'"});
}

TEST_F(Verify, TheFirstWriterHasNothingToAddTo) {
  node("dw", "mul", {y, x}, Section::Backward, {g}, {true});
  says(verified(), {"'dw'", "adds to 'grad.w', which no node has written"});
}

TEST_F(Verify, AnOpThatCannotAdd) {
  backward();
  const galley_tensor sum = node("s", "square", {g}, Section::Update);
  node("s2", "square", {g}, Section::Update, {sum}, {true});
  says(verified(), {"'s2'", "which its op cannot"});
}

TEST_F(Verify, ANodeHasTheOperandsOfItsOp) {
  GraphNode& node = graph.node(graph.section(Section::Forward)[0]);
  node.inputs = {x};
  says(verified(), {"'y'", "lacks its input 'b'"});
  node.inputs = {x, w, x};
  says(verified(), {"'y'", "has 3 inputs; the op takes 2"});
}

TEST_F(Verify, GradientsAreGoneWhenTheModelIsSaved) {
  backward();
  node("late", "mul", {g, x}, Section::Export);
  says(verified(), {"'late'", "reads 'grad.w', which is gone when the export part runs"});
}

TEST_F(Verify, OnlyBackwardAndTheUpdateWriteGradients) {
  backward();
  node("early", "mul", {x, x}, Section::Forward, {g});
  says(verified(), {"'early'", "writes 'grad.w' in the forward part"});
}

TEST_F(Verify, ReadersComeAfterWriters) {
  backward();
  const galley_tensor late = node("late", "mul", {g, g}, Section::Update);
  node("u", "step", {w, g}, Section::Update, {});
  graph.node(graph.section(Section::Update)[0]).inputs[1] = late;
  says(verified(), {"'late'", "reads 'late' before 'late' writes it"});
}

TEST_F(Verify, WhatReplaceMovesBehindItsReaders) {
  backward();
  node("u", "step", {w, g}, Section::Update, {});
  const Graph::As as(graph, {Section::Update});
  const galley_tensor twice = node("twice", "add", {g, g}, Section::Update);
  ASSERT_TRUE(graph.replace(g, twice).ok());
  says(verified(), {"'u'", "op 'step'", "reads 'twice' before 'twice' writes it"});
}

TEST_F(Verify, TransientsEndWithTheirPart) {
  backward();
  node("u", "mul", {y, y}, Section::Update);
  says(verified(), {"'u'", "reads 'y', which is gone when the update part runs"});
}

TEST_F(Verify, ShapesAreAskedForWhereAllOutputsExist) {
  const galley_tensor narrow = tensor("narrow", {2}, GALLEY_KIND_TRANSIENT);
  node("n", "mul", {x, w}, Section::Forward, {narrow});
  says(verified(), {"'n'", "f32(4)", "'narrow' is f32(2)"});
}

TEST_F(Verify, ShapesAreAskedForWhereThereIsNoOutput) {
  backward();
  const galley_tensor wide = tensor("wide", {8}, GALLEY_KIND_STATE);
  node("u", "step", {wide, g}, Section::Update, {});
  says(verified(), {"'u'", "operands differ in size"});
}

TEST_F(Verify, ShapesAreAskedForAgainWhenAnInputIsReplaced) {
  EXPECT_EQ(verified(), "");
  const galley_tensor wide = input("wide", {8});
  graph.node(graph.section(Section::Forward)[0]).inputs[0] = wide;
  says(verified(), {"'y'", "operands differ in size"});
}

TEST_F(Verify, DtypesToo) {
  backward();
  const galley_tensor single = tensor("single", {1}, GALLEY_KIND_STATE);
  node("s", "square", {g}, Section::Update, {single});
  says(verified(), {"'s'", "f64(1)", "f32(1)"});
}

TEST_F(Verify, OnlyTheUpdateWritesParameters) {
  node("early", "step", {w, x}, Section::Forward, {});
  says(verified(), {"'early'", "writes 'w' in the forward part"});
}

TEST_F(Verify, NothingWritesWhatIsFrozen) {
  backward();
  const galley_tensor frozen = parameter("frozen");
  node("u", "step", {frozen, g}, Section::Update, {});
  says(verified(), {"'u'", "writes 'frozen', which is frozen"});
}

TEST_F(Verify, NothingWritesWhatTheLoaderFills) {
  node("i", "mul", {y, y}, Section::Forward, {x});
  says(verified(), {"'i'", "writes 'x', which nodes only read"});
}

TEST_F(Verify, SurplusOutputs) {
  node("two", "mul", {x, w}, Section::Forward, {0, tensor("t", {4}, GALLEY_KIND_TRANSIENT)});
  says(verified(), {"'two'", "has 2 outputs; the op has 1"});
}

TEST_F(Verify, WhatIsWrittenIsOneOperand) {
  backward();
  node("u", "step", {w, w}, Section::Update, {});
  says(verified(), {"'u'", "writes 'w', which is another operand of it as well"});
}

TEST_F(Verify, AnUnknownKind) {
  tensor("odd", {4}, 99);
  says(verified(), {"'odd'", "unknown kind 99"});
}

TEST_F(Verify, BlamesTheGradientRule) {
  {
    const Graph::As as(graph, {Section::Backward, no_use, -1, graph.section(Section::Forward)[0], "y."});
    std::vector<galley_tensor> out = {tensor("narrow", {2}, GALLEY_KIND_TRANSIENT)};
    ASSERT_TRUE(graph.append("mul", "dy", {y, x}, {}, &out).ok());
  }
  const Status status = verify("differentiate");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().exit, Exit::Plugin);
  says(status.error().cause, {"'dy'", "made by the gradient rule of op 'mul' of 'y'"});
}

}  // namespace
}  // namespace galley::hand
