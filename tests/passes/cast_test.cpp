#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Cast : public Hand {
 protected:
  /// What a node's claim says.
  void computes(const std::string& name, uint32_t dtype = GALLEY_BF16, int64_t weights = GALLEY_WEIGHTS_DERIVED) {
    for (const galley_node n : graph.section(Section::Forward))
      if (graph.node(n).name == name) {
        graph.node(n).products.dtype = dtype;
        graph.node(n).products.weights = weights;
      }
  }
  std::string dtype(galley_tensor t) const { return dtype_text(graph.tensor(t).dtype); }
  std::string done() {
    const std::string said = cause(cast(*c));
    return said.empty() ? verified() : said;
  }
  void lose(galley_tensor of) { node("l", "loss", {of}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)}); }
};

TEST_F(Cast, NothingIsChangedWhereAllComputesInF32) {
  const galley_tensor y = node("y", "product", {input("x"), parameter("w")});
  lose(y);
  computes("y", GALLEY_F32);
  const std::string before = text(Section::Forward);
  ASSERT_EQ(done(), "");
  EXPECT_EQ(text(Section::Forward), before);
  EXPECT_EQ(dtype(y), "f32");
}

TEST_F(Cast, AProductReadsBoth) {
  const galley_tensor w = parameter("w"), y = node("y", "product", {input("x"), w});
  lose(y);
  train({w});
  computes("y");
  ASSERT_EQ(done(), "");
  // The loss wants F32, which a product can write.
  EXPECT_EQ(text(Section::Forward),
            "copy(x) -> x in bf16\n"
            "product(x in bf16, w in bf16) -> y\n"
            "loss(y) -> scalar.loss\n");
  EXPECT_EQ(dtype(y), "f32");
  const GraphTensor& derived = graph.tensor(graph.find("w in bf16"));
  EXPECT_EQ(derived.kind, uint32_t{GALLEY_KIND_CONSTANT});
  EXPECT_EQ(derived.initial.op, "copy");
  EXPECT_EQ(derived.initial.inputs, std::vector<galley_tensor>{w});
  EXPECT_EQ(graph.tensor(w).storage.kept_dtype, 0u);
}

TEST_F(Cast, WhatLiesBetweenProductsIsIn16Bit) {
  const galley_tensor w = parameter("w");
  const galley_tensor a = node("a", "product", {input("x"), w}), b = node("b", "follows", {a}), y = node("y", "product", {b, w});
  lose(y);
  computes("a"), computes("y");
  ASSERT_EQ(done(), "");
  EXPECT_EQ(dtype(a) + dtype(b), "bf16bf16");
  EXPECT_EQ(text(Section::Forward),
            "copy(x) -> x in bf16\n"
            "product(x in bf16, w.bf16) -> a\n"
            "follows(a) -> b\n"
            "product(b, w.bf16) -> y\n"
            "loss(y) -> scalar.loss\n");
}

TEST_F(Cast, WhatFollowsF32ComputesInF32AndWritesWhatIsRead) {
  const galley_tensor b = node("b", "follows", {node("n", "look", {parameter("t")})});
  lose(node("y", "product", {b, parameter("w")}));
  computes("y"), computes("n");
  ASSERT_EQ(done(), "");
  EXPECT_EQ(dtype(b), "bf16");
  EXPECT_EQ(text(Section::Forward).find("copy"), std::string::npos);
}

TEST_F(Cast, OneCastServesAllReadersAndF32StaysForTheOthers) {
  const galley_tensor w = parameter("w"), v = parameter("v"), n = node("n", "full", {input("x")});
  lose(node("a", "product", {n, w}));
  lose(node("b", "product", {n, v}));
  lose(n);
  computes("a"), computes("b");
  ASSERT_EQ(done(), "");
  EXPECT_EQ(dtype(n), "f32");
  EXPECT_EQ(text(Section::Forward),
            "full(x) -> n\n"
            "copy(n) -> n in bf16\n"
            "product(n in bf16, w.bf16) -> a\n"
            "loss(a) -> scalar.loss\n"
            "product(n in bf16, v.bf16) -> b\n"
            "loss(b) -> scalar.loss\n"
            "loss(n) -> scalar.loss\n");
}

TEST_F(Cast, ACastIsFoldedIntoANormThatOnlyProductsRead) {
  const galley_tensor n = node("n", "full", {input("x")});
  lose(node("a", "product", {n, parameter("w")}));
  computes("a");
  ASSERT_EQ(done(), "");
  EXPECT_EQ(dtype(n), "bf16");
  EXPECT_EQ(text(Section::Forward).substr(0, 12), "full(x) -> n");
}

TEST_F(Cast, AFrozenWeightIsKeptIn16BitIfAllReadersComputeSo) {
  const galley_tensor both = parameter("both"), one = parameter("one");
  lose(node("a", "product", {node("t", "look", {both}), both}));
  lose(node("b", "product", {input("x"), one}));
  lose(one);
  for (const char* name : {"a", "t", "b"}) computes(name);
  ASSERT_EQ(done(), "");
  EXPECT_EQ(graph.tensor(both).storage.kept_dtype, uint32_t{GALLEY_BF16});
  EXPECT_EQ(graph.tensor(one).storage.kept_dtype, 0u);
  EXPECT_EQ(graph.tensor(graph.find("one in bf16")).initial.inputs, std::vector<galley_tensor>{one});
  EXPECT_EQ(graph.tensor(graph.find("both.bf16")).storage.numbers_of, both);
}

TEST_F(Cast, CastOnUseKeepsNoCopy) {
  const galley_tensor w = parameter("w");
  lose(node("a", "product", {input("x"), w}));
  train({w});
  computes("a", GALLEY_F16, GALLEY_WEIGHTS_CAST_ON_USE);
  ASSERT_EQ(cause(differentiate(*c)), "");
  ASSERT_EQ(done(), "");
  EXPECT_EQ(graph.find("w in f16"), 0u);
  EXPECT_EQ(graph.tensor(graph.find("w.f16")).storage.numbers_of, w);
}

TEST_F(Cast, BackwardComputesAsForwardDoesAndSumsStayF32) {
  const galley_tensor w = parameter("w"), v = parameter("v"), n = node("n", "full", {parameter("p")});
  lose(node("a", "product", {n, w}));
  lose(node("b", "product", {n, v}));
  computes("a"), computes("b");
  train({graph.find("p"), w, v});
  ASSERT_EQ(cause(differentiate(*c)), "");
  ASSERT_EQ(done(), "");
  EXPECT_EQ(dtype(graph.tensor(w).gradient), "f32");
  EXPECT_EQ(dtype(n), "bf16");
  galley_tensor sum = 0;
  for (const galley_node k : graph.section(Section::Backward))
    if (chosen(graph.node(k).accumulate, 0)) sum = graph.node(k).outputs[0];
  ASSERT_NE(sum, 0u);
  EXPECT_EQ(dtype(sum), "f32") << "two products add to it";
}

TEST_F(Cast, AGradientInItsOwnDtype) {
  const galley_tensor w = parameter("w");
  lose(node("a", "product", {input("x"), w}));
  train({w});
  ASSERT_EQ(cause(differentiate(*c)), "");
  graph.tensor(graph.tensor(w).gradient).dtype = GALLEY_BF16;
  ASSERT_EQ(done(), "");
  const GraphNode& writes = graph.node(graph.tensor(graph.tensor(w).gradient).producer);
  EXPECT_STREQ(static_cast<const char*>(writes.attrs.find("dtype")->data), "bf16");
}

}  // namespace
}  // namespace galley::hand
