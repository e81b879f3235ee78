// Graphs in which two processes have parts of weights: what differs between them, the backward graph, and what is refused.
#include "host/passes/differing.hpp"

#include "host/graph/axes.hpp"
#include "host/proofs/divided.hpp"
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Divided : public Hand {
 protected:
  Divided() {
    options.lanes.ranks = options.lanes.together = 2;
    options.lanes.axis = "tensor";
    draft.run.axes = std::make_shared<const Axes>(2, 0, 2, "tensor");
  }
  galley_tensor part(const std::string& name, uint32_t kind = GALLEY_KIND_PARAMETER) {
    const galley_tensor t = tensor(name, {4}, kind);
    graph.tensor(t).part = {sizeof(galley_part), 1, "tensor", 0, 0, 8, 0};
    return t;
  }
  galley_tensor sum(const std::string& name, galley_tensor x, const char* axis = "tensor", int64_t ranks = 2) {
    AttrList attrs;
    attrs.set("axis", axis);
    attrs.set("ranks", ranks);
    std::vector<galley_tensor> out = {0};
    EXPECT_TRUE(graph.append("all_reduce", name, {x}, std::move(attrs), &out));
    return out[0];
  }
  void loss(galley_tensor x) { node("l", "loss", {x}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)}); }
  std::string backward() {
    Status done = differentiate(*c);
    if (done) done = verify("differentiate");
    return done ? text(Section::Backward) : done.error().cause;
  }
  std::string refused() { return cause(check_divided(*c)); }
};

TEST_F(Divided, WhatIsMadeFromPartsDiffersUntilASum) {
  const galley_tensor x = input("x"), w = part("w"), y = node("y", "mul", {x, w}), z = sum("z", y), after = node("after", "mul", {z, x});
  Differing differing(*c);
  for (const galley_node n : graph.section(Section::Forward)) differing.add(graph.node(n));
  EXPECT_TRUE(differing(w) && differing(y));
  EXPECT_FALSE(differing(x) || differing(z) || differing(after));
}

TEST_F(Divided, WhatSeveralPartsReadIsAddedUpOnce) {
  const galley_tensor x = input("x"), v = parameter("v"), w = part("w"), u = part("u");
  const galley_tensor h = node("h", "mul", {x, v});
  loss(sum("z", node("s", "mul", {node("p", "mul", {h, w}), node("q", "mul", {h, u})})));
  train({v, w, u});
  EXPECT_EQ(backward(),
            "mul(z, z) -> l.mul.7\n"
            "mul(l.mul.7, q) -> s.mul.8\n"
            "mul(l.mul.7, p) -> s.mul.9\n"
            "mul(s.mul.9, u) -> q.mul.10\n"
            "mul(s.mul.9, h) -> grad.u\n"
            "mul(s.mul.8, w) -> +q.mul.10\n"
            "mul(s.mul.8, h) -> grad.w\n"
            "all_reduce(q.mul.10) -> h.all_reduce.14\n"
            "mul(h.all_reduce.14, x) -> grad.v\n");
}

TEST_F(Divided, WhatIsReadWholeAsWellIsAddedUpByItself) {
  const galley_tensor x = input("x"), v = parameter("v"), w = part("w");
  const galley_tensor h = node("h", "mul", {x, v});
  loss(node("y", "mul", {sum("z", node("p", "mul", {h, w})), h}));
  train({v});
  EXPECT_EQ(backward(),
            "mul(y, y) -> l.mul.6\n"
            "mul(l.mul.6, h) -> y.mul.7\n"
            "mul(l.mul.6, z) -> y.mul.8\n"
            "mul(y.mul.7, w) -> p.mul.9\n"
            "all_reduce(p.mul.9) -> h.all_reduce.10\n"
            "add(y.mul.8, h.all_reduce.10) -> h.add.11\n"
            "mul(h.add.11, x) -> grad.v\n");
}

TEST_F(Divided, AWholeParameterBesideParts) {
  const galley_tensor x = input("x"), v = parameter("v"), w = part("w");
  loss(sum("z", node("q", "mul", {node("p", "mul", {node("wx", "mul", {x, w}), v}), v})));
  train({v});
  EXPECT_EQ(backward(),
            "mul(z, z) -> l.mul.6\n"
            "mul(l.mul.6, v) -> q.mul.7\n"
            "mul(l.mul.6, p) -> q.mul.8\n"
            "all_reduce(q.mul.8) -> grad.v\n"
            "mul(q.mul.7, wx) -> p.mul.10\n"
            "all_reduce(p.mul.10) -> +grad.v\n");
}

TEST_F(Divided, AParameterOfAStrategyBesideParts) {
  use("peaks", {{"share", 0.0}});
  const galley_tensor x = input("x"), v = parameter("v"), w = part("w");
  graph.tensor(v).use = 0;
  loss(sum("z", node("p", "mul", {node("wx", "mul", {x, w}), v})));
  train({v});
  EXPECT_NE(backward().find("'v' is trained in 'p', of which each process along the axis 'tensor' computes a part"), std::string::npos)
      << backward();
}

TEST_F(Divided, ALossOfParts) {
  const galley_tensor w = part("w");
  loss(node("y", "mul", {input("x"), w}));
  train({w});
  EXPECT_EQ(backward(), "the loss 'l' is made from parts of processes along the axis 'tensor'");
}

TEST_F(Divided, ASumAlongAnAxisThatIsNotThere) {
  sum("z", node("y", "mul", {input("x"), part("w")}), "rows");
  EXPECT_NE(verified().find("exchanges along the axis 'rows', which the run does not have"), std::string::npos) << verified();
}

TEST_F(Divided, ASumOfOtherProcesses) {
  sum("z", node("y", "mul", {input("x"), part("w")}), "tensor", 4);
  EXPECT_NE(verified().find("along the axis 'tensor' with ranks = 4, which is 2"), std::string::npos) << verified();
}

TEST_F(Divided, RandomNumbersForParts) {
  sum("z", node("y", "draws", {node("p", "mul", {input("x"), part("w")}), *draft.scalars.get(GALLEY_SCALAR_RANDOM)}));
  EXPECT_NE(refused().find("'y' computes with a part"), std::string::npos) << refused();
  EXPECT_NE(refused().find("draws random numbers"), std::string::npos) << refused();
}

TEST_F(Divided, AnUpdateByElements) {
  const galley_tensor w = part("w"), g = tensor("grad.w", {4}, GALLEY_KIND_GRADIENT);
  graph.tensor(g).parameter = w;
  node("step", "step_by_element", {w, g, *draft.scalars.get(GALLEY_SCALAR_APPLY)}, Section::Update, {});
  EXPECT_EQ(refused(), "");
  node("rows", "step_by_row", {w, g}, Section::Update, {});
  EXPECT_NE(refused().find("'rows' computes with a part"), std::string::npos) << refused();
  EXPECT_NE(refused().find("takes all of it together"), std::string::npos) << refused();
}

TEST_F(Divided, AStateThatIsNoPart) {
  const galley_tensor w = part("w"), s = tensor("s", {4}, GALLEY_KIND_STATE);
  node("step", "step_by_element", {s, w, *draft.scalars.get(GALLEY_SCALAR_APPLY)}, Section::Update, {});
  EXPECT_NE(refused().find("writes 's', which is the same on all of them"), std::string::npos) << refused();
  graph.tensor(s).part = graph.tensor(w).part;
  EXPECT_EQ(refused(), "");
}

TEST_F(Divided, AStateThatBeginsAsAPart) {
  const galley_tensor w = part("w"), s = tensor("s", {4}, GALLEY_KIND_STATE);
  graph.tensor(s).initial = {"copy", {w}, {}};
  EXPECT_NE(refused().find("'s' is made from what is divided"), std::string::npos) << refused();
  graph.tensor(s).part = graph.tensor(w).part;
  EXPECT_EQ(refused(), "");
  graph.tensor(s).initial.op = "wide";
  EXPECT_NE(refused().find("'s' begins as what would be computed from a whole tensor"), std::string::npos) << refused();
}

TEST_F(Divided, AFormat) {
  graph.tensor(part("w")).storage.format = "pair";
  EXPECT_NE(refused().find("would be kept in the format 'pair'"), std::string::npos) << refused();
}

TEST_F(Divided, WhatIsSaved) {
  node("merged", "mul", {part("w"), parameter("v")}, Section::Export);
  EXPECT_NE(refused().find("'merged' computes with a part"), std::string::npos) << refused();
}

TEST_F(Divided, WithoutGroupsNothingDiffers) {
  options.lanes.together = 1;
  const galley_tensor w = part("w");
  EXPECT_FALSE(Differing(*c)(w));
  EXPECT_EQ(refused(), "");
}

}  // namespace
}  // namespace galley::hand
