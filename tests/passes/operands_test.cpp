// The operands that nodes really have: after what rewires them, each has the dtype that its op reads.
#include "host/proofs/verify_operands.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

/// A norm whose output a product reads in BF16, and dropout as it is: what dropout writes is in BF16 too, for the product after it.
class Operands : public Hand {
 protected:
  Operands() {
    options.purpose = Purpose::Evaluate;
    n = node("n", "full", {input("x")});
    lose("lq", node("q", "product", {n, parameter("w")}));
    dropped = node("d", "drops", {n});
    lose("la", node("a", "product", {dropped, parameter("v")}));
    for (const galley_node k : graph.section(Section::Forward))
      if (graph.node(k).op == op("product")) graph.node(k).products.dtype = GALLEY_BF16;
  }
  void lose(const std::string& name, galley_tensor of) {
    node(name, "loss", {of}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
  }
  Item& item(const std::string& name) {
    for (Item& i : c->orders.inference)
      if (i.node->name == name) return i;
    throw std::runtime_error("no item " + name);
  }
  uint32_t read_by(const std::string& name) { return c->tensors()[item(name).inputs[0].tensor].dtype; }
  std::string placed() {
    const std::string said = run({place});
    return said.empty() ? cause(verify_operands(*c, "place")) : said;
  }
  galley_tensor n = 0, dropped = 0;
};

TEST_F(Operands, EvaluationReadsTheCastThatIsThere) {
  ASSERT_EQ(cause(cast(*c)), "");
  ASSERT_EQ(cause(order(*c)), "");
  ASSERT_EQ(graph.tensor(n).dtype, uint32_t{GALLEY_F32});
  ASSERT_EQ(graph.tensor(dropped).dtype, uint32_t{GALLEY_BF16});
  EXPECT_EQ(read_by("a"), uint32_t{GALLEY_BF16});
  EXPECT_EQ(item("a").inputs[0].tensor, item("q").inputs[0].tensor);
  EXPECT_EQ(placed(), "");
}

TEST_F(Operands, WithoutOneEvaluationCastsInThePlaceOfDropout) {
  for (const galley_node k : graph.section(Section::Forward))
    if (graph.node(k).name == "q") graph.node(k).products.dtype = GALLEY_F16;
  ASSERT_EQ(cause(cast(*c)), "");
  ASSERT_EQ(cause(order(*c)), "");
  EXPECT_EQ(read_by("a"), uint32_t{GALLEY_BF16});
  EXPECT_EQ(item("d, cast").inputs[0].tensor, n);
  EXPECT_EQ(placed(), "");
  EXPECT_NE(code(SegmentKind::Eval).find("d, cast"), std::string::npos) << code(SegmentKind::Eval);
}

TEST_F(Operands, AnOperandInAnotherDtypeIsRefusedByName) {
  ASSERT_EQ(cause(cast(*c)), "");
  ASSERT_EQ(cause(order(*c)), "");
  item("a").inputs[0].tensor = n;  // what dropout reads, as it is
  const std::string said = placed();
  EXPECT_NE(said.find("eval, node 'a' (op 'product'"), std::string::npos) << said;
  EXPECT_NE(said.find("reads operands in two dtypes"), std::string::npos) << said;
  EXPECT_NE(said.find("'x' ('n') is f32(4)"), std::string::npos) << said;
  EXPECT_NE(said.find("is bf16(4)"), std::string::npos) << said;
}

TEST_F(Operands, WhatAShapeRuleRefusesIsRefusedInAProgramToo) {
  ASSERT_EQ(cause(cast(*c)), "");
  ASSERT_EQ(cause(order(*c)), "");
  ASSERT_EQ(run({place}), "");
  Instruction& q = c->program.segment(SegmentKind::Eval).code.back();
  ASSERT_STREQ(q.launch()->op()->name, "loss");
  q.outputs[0].dtype = GALLEY_F32;
  const std::string said = cause(verify_operands(*c, "place"));
  EXPECT_NE(said.find("writes f64(1), but its output 'sum'"), std::string::npos) << said;
}

TEST_F(Operands, WhatAnOpOnlyReadsIsNotUpdated) {
  ASSERT_EQ(cause(cast(*c)), "");
  ASSERT_EQ(cause(order(*c)), "");
  ASSERT_EQ(run({place}), "");
  for (Instruction& i : c->program.segment(SegmentKind::Eval).code)
    if (i.name == "a") i.inputs[0].access = GALLEY_READ_WRITE;
  const std::string said = cause(verify_operands(*c, "place"));
  EXPECT_NE(said.find("updates its input 'x'"), std::string::npos) << said;
}

}  // namespace
}  // namespace galley::hand
