// What runs once a window, and updates that move into backward.
#include <map>
#include "host/proofs/shadow.hpp"

#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Window : public Hand {
 protected:
  Window() { options.purpose = Purpose::Train; }
  galley_tensor scalar(uint32_t which) { return *draft.scalars.get(which); }
  void lose(galley_tensor of) { node("l", "loss", {of}, Section::Forward, {scalar(GALLEY_SCALAR_LOSS)}); }
  std::string through(const std::vector<Status (*)(Compilation&)>& passes) {
    for (const auto pass : passes)
      if (const Status done = pass(*c); !done) return done.error().cause;
    return verified();
  }
  const std::string begins =
      "begin(scalar.attempted_step, applied steps) -> scalar.applied_step, scalar.apply, scalar.loss_scale, scalar.random\n"
      "zero() -> scalar.loss\n";
  const std::string seeds = "seed(scalar.loss_scale, scalar.window_tokens) -> scalar.loss_seed, scalar.gradient_factor\n";
};

TEST_F(Window, BeginsWithTheScalarsAndTheUpdateCountsItself) {
  const galley_tensor w = parameter("w");
  lose(node("y", "mul", {input("x"), w}));
  train({w});
  use("steps", {});
  graph.tensor(w).update_use = 0;
  ASSERT_EQ(through({differentiate, update, window}), "");
  EXPECT_EQ(text(Section::Window), begins + seeds);
  EXPECT_EQ(text(Section::Update).substr(text(Section::Update).rfind("end(")), "end(scalar.apply, applied steps) -> \n");
  EXPECT_EQ(text(Section::Forward).find("rows("), std::string::npos) << "nobody draws";
  EXPECT_EQ(graph.tensor(c->applied).kind, uint32_t{GALLEY_KIND_STATE});
}

// The host writes the block's first bytes: what it says of an option moves all that is after it on.
TEST_F(Window, WhatTheHostSaysOfOptionsIsWithWhatItSaysOfSteps) {
  const int64_t host = draft.scalars.host_bytes, norm = graph.tensor(scalar(GALLEY_SCALAR_GRADIENT_NORM)).slice.offset;
  const galley_tensor later = *draft.scalars.in_block("later", GALLEY_F64, 1, draft.scalars.reserve(8));
  const int64_t before = graph.tensor(later).slice.offset, bytes = draft.scalars.bytes;
  const auto first = draft.scalars.in_host_block("first", GALLEY_I64, 1), values = draft.scalars.in_host_block("values", GALLEY_F64, 9);
  ASSERT_TRUE(first.ok() && values.ok());
  EXPECT_EQ(graph.tensor(*first).slice.offset, host);
  EXPECT_EQ(graph.tensor(*values).slice.offset, host + 64);
  EXPECT_EQ(draft.scalars.host_bytes, host + 64 + 128);
  EXPECT_EQ(graph.tensor(later).slice.offset, before + 192);
  EXPECT_EQ(graph.tensor(scalar(GALLEY_SCALAR_GRADIENT_NORM)).slice.offset, norm + 192);
  EXPECT_EQ(draft.scalars.bytes, bytes + 192);
  EXPECT_EQ(graph.tensor(draft.scalars.tensor).bytes(), draft.scalars.bytes);
  const auto slot = std::find_if(draft.scalars.slots.begin(), draft.scalars.slots.end(),
                                 [](const ScalarSlot& s) { return s.which == GALLEY_SCALAR_GRADIENT_NORM; });
  ASSERT_NE(slot, draft.scalars.slots.end());
  EXPECT_EQ(slot->offset, norm + 192);
}

TEST_F(Window, EachMicroBatchMovesTheRowOnWhereSomethingDraws) {
  const galley_tensor w = parameter("w");
  lose(node("y", "draws", {w, scalar(GALLEY_SCALAR_RANDOM)}));
  train({w});
  ASSERT_EQ(through({window}), "");
  EXPECT_EQ(text(Section::Forward).substr(0, text(Section::Forward).find('\n')), "rows(scalar.random) -> ");
}

TEST_F(Window, WhatItMakesIsThereInEveryMicroBatchAndInValidation) {
  const galley_tensor w = parameter("w"), x = input("x");
  lose(node("y", "mul", {x, w}));
  use("holds", {});
  train({});
  options.purpose = Purpose::Gradients;
  ASSERT_EQ(through({rewrite, window}), "");
  EXPECT_EQ(text(Section::Window), begins + "copy(w) -> held\n" + seeds);
  EXPECT_EQ(text(Section::Forward).substr(0, 17), "mul(x, held) -> y");
  ASSERT_EQ(run({order, place}), "");
  const auto held =
      std::find_if(c->program.tensors.begin(), c->program.tensors.end(), [](const ProgramTensor& t) { return t.name == "held"; });
  ASSERT_NE(held, c->program.tensors.end());
  EXPECT_EQ(held->life, Life::Run);
  EXPECT_NE(code(SegmentKind::Window).find("'hold'"), std::string::npos);
}

TEST_F(Window, ValidationTakesAlongWhatItReads) {
  const galley_tensor w = parameter("w"), x = input("x");
  lose(node("y", "mul", {x, w}));
  use("holds", {});
  options.purpose = Purpose::Evaluate;
  ASSERT_EQ(through({rewrite, window}), "");
  ASSERT_EQ(run({order, place}), "");
  const std::string eval = code(SegmentKind::Eval);
  EXPECT_LT(eval.find("'hold'"), eval.find("'y'"));
  EXPECT_NE(eval.find("zero"), std::string::npos);
  EXPECT_EQ(eval.find("begin"), std::string::npos) << "nothing of it is read";
}

TEST_F(Window, ItReadsWhatTheModelIsEvaluatedWith) {
  for (const bool made : {false, true}) {
    SCOPED_TRACE(made ? "made by a node" : "a state");
    const std::string suffix = made ? "2" : "";
    const galley_tensor w = parameter("w" + suffix), x = input("x" + suffix), held = node("held" + suffix, "copy", {w}, Section::Window);
    const galley_tensor y = node("y" + suffix, "mul", {x, held});
    lose(y);
    const galley_tensor mean = made ? node("value", "mul", {w, w}, Section::Evaluate) : tensor("mean", {4}, GALLEY_KIND_STATE);
    draft.evaluated = {{w, mean}};
    options.purpose = Purpose::Evaluate;
    ASSERT_TRUE(order(*c).ok());
    std::map<std::string, size_t> at;
    const std::vector<Item>& items = c->orders.inference;
    for (size_t i = 0; i < items.size(); ++i) at[items[i].node->name] = i;
    ASSERT_TRUE(at.contains("held" + suffix));
    EXPECT_EQ(items[at["held" + suffix]].inputs[0].tensor, mean);
    EXPECT_LT(at["held" + suffix], at["y" + suffix]);
    if (!made) continue;
    ASSERT_TRUE(at.contains("value"));
    EXPECT_LT(at["value"], at["held2"]);
    EXPECT_EQ(items[at["value"]].inputs[0].tensor, w) << "what stands for a parameter is made of the parameter itself";
  }
}

/// All that is wrong with the window part, one thing at a time; what is read of it in micro must be rejected.
TEST_F(Window, TheShadowRejectsItsMutants) {
  const galley_tensor w = parameter("w"), v = parameter("v");
  const galley_tensor y = node("y", "mul", {node("m", "mul", {input("x"), w}), v});
  const galley_tensor z = node("z", "draws", {y, scalar(GALLEY_SCALAR_RANDOM)});
  node("l", "loss", {z}, Section::Forward, {scalar(GALLEY_SCALAR_LOSS)}, {true});
  node("seeded", "square", {scalar(GALLEY_SCALAR_LOSS_SEED)});
  train({v});
  use("holds", {});
  use("steps", {});
  graph.tensor(v).update_use = 1;
  ASSERT_EQ(through({rewrite, differentiate, update, window}), "");
  ASSERT_EQ(run({order, place}), "");
  const Program good = c->program;
  const auto verdict = [&](const Program& program) { return cause(check_plan(program, make_plan(program, target), target)); };
  ASSERT_EQ(verdict(good), "");
  const auto& code = good.segment(SegmentKind::Window).code;
  ASSERT_GT(code.size(), 4u);
  const auto conflict = [](const Instruction& before, const Instruction& behind) {
    for (const Operand& o : before.outputs)
      for (const Operand& i : behind.inputs)
        if (o.tensor == i.tensor && o.offset < i.offset + i.bytes() && i.offset < o.offset + o.bytes()) return true;
    return false;
  };
  for (size_t i = 0; i < code.size(); ++i) {
    Program program = good;
    auto& window = program.segment(SegmentKind::Window).code;
    window.erase(window.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_NE(verdict(program), "") << "without " << code[i].name;
    auto& update = program.segment(SegmentKind::Update).code;
    update.insert(update.begin(), code[i]);
    EXPECT_NE(verdict(program), "") << code[i].name << " in the update";
    for (size_t k = i + 1; k < code.size(); ++k) {
      if (!conflict(code[i], code[k])) continue;
      program = good;
      std::swap(program.segment(SegmentKind::Window).code[i], program.segment(SegmentKind::Window).code[k]);
      EXPECT_NE(verdict(program), "") << code[i].name << " and " << code[k].name << " change places";
    }
  }
}

TEST_F(Window, WhatItMakesOutlivesTheWindow) {
  const galley_tensor w = parameter("w"), v = parameter("v");
  lose(node("y", "mul", {node("m", "mul", {input("x"), w}), v}));
  train({v});
  options.purpose = Purpose::Gradients;
  use("holds", {});
  ASSERT_EQ(through({rewrite, differentiate, window}), "");
  ASSERT_EQ(run({order, place}), "");
  for (const Life life : {Life::Segment, Life::Window}) {
    Program program = c->program;
    for (ProgramTensor& t : program.tensors)
      if (t.name == "held") t.life = life;
    const std::string said = cause(check_plan(program, make_plan(program, target), target));
    EXPECT_NE(said.find("tensor 'held' of "), std::string::npos) << said;
    EXPECT_NE(said.find(" is used in window, micro"), std::string::npos) << said;
  }
}

// ---- Updates in backward -----------------------------------------------------------------------------------------------------------

class Immediate : public Window {
 protected:
  Immediate() {
    w = parameter("w"), v = parameter("v");
    lose(node("z", "mul", {node("y", "mul", {input("x"), w}), v}));
    train({w, v});
    use("steps", {});
    for (const galley_tensor p : {w, v}) graph.tensor(p).update_use = 0;
  }
  std::string moved(std::vector<galley_tensor> parameters) {
    if (const Status done = differentiate(*c); !done) return done.error().cause;
    for (const galley_tensor p : parameters) graph.tensor(graph.tensor(p).gradient).immediate = true;
    return through({update, window, immediate});
  }
  galley_tensor w = 0, v = 0;
};

TEST_F(Immediate, AnUpdateFollowsTheLastReaderOfItsParameter) {
  ASSERT_EQ(moved({w, v}), "");
  const std::string backward = text(Section::Backward);
  // v's product for dy reads v, and comes before v moves; the norm stays where it was.
  EXPECT_EQ(backward,
            "mul(z, z) -> l.mul.4\n"
            "mul(l.mul.4, v) -> z.mul.5\n"
            "mul(l.mul.4, y) -> grad.v\n"
            "square(grad.v) -> sum of squares of grad.v\n"
            "step(v, grad.v, scalar.apply) -> \n"
            "mul(z.mul.5, x) -> grad.w\n"
            "square(grad.w) -> sum of squares of grad.w\n"
            "step(w, grad.w, scalar.apply) -> \n");
  EXPECT_EQ(text(Section::Update).substr(0, 5), "norm(");
}

TEST_F(Immediate, UpdatesOfABlockWaitForEachOther) {
  if (const Status done = differentiate(*c); !done) FAIL() << done.error().cause;
  for (const galley_node n : graph.section(Section::Backward)) graph.node(n).block = 0;
  for (const galley_tensor p : {w, v}) graph.tensor(graph.tensor(p).gradient).immediate = true;
  ASSERT_EQ(through({update, window, immediate}), "");
  // There is room for two gradients of this size.
  const std::string backward = text(Section::Backward);
  EXPECT_GT(backward.find("step(v"), backward.find("-> grad.w"));
}

TEST_F(Immediate, TheOthersStay) {
  ASSERT_EQ(moved({v}), "");
  EXPECT_EQ(text(Section::Backward).find("step(w"), std::string::npos);
  EXPECT_NE(text(Section::Update).find("step(w, grad.w, scalar.apply)"), std::string::npos);
  EXPECT_EQ(text(Section::Update).find("step(v"), std::string::npos);
}

TEST_F(Immediate, SeveralMicroBatchesAreRefused) {
  c->decisions.micro_batches = 4;
  EXPECT_EQ(moved({w}).substr(0, 79), "gradients are to be used as soon as they are there, but a window has 4 micro-ba");
}

TEST_F(Immediate, WhatJoinsTwoUpdatesIsNamed) {
  if (const Status done = differentiate(*c); !done) FAIL();
  for (const galley_tensor p : {w, v}) graph.tensor(graph.tensor(p).gradient).immediate = true;
  ASSERT_EQ(through({update, window}), "");
  node("joins", "add", {graph.tensor(w).gradient, graph.tensor(v).gradient}, Section::Update);
  EXPECT_EQ(cause(immediate(*c)), "'joins' joins the updates of 'w' and 'v', so neither can be done in backward");
}

TEST_F(Immediate, WhatNeedsAllGradientsIsNamed) {
  if (const Status done = differentiate(*c); !done) FAIL();
  graph.tensor(graph.tensor(w).gradient).immediate = true;
  ASSERT_EQ(through({update, window}), "");
  node("clipped", "scheduled", {graph.tensor(w).gradient, scalar(GALLEY_SCALAR_APPLIED_STEP), scalar(GALLEY_SCALAR_GRADIENT_NORM)},
       Section::Update);
  const std::string said = cause(immediate(*c));
  EXPECT_NE(said.find("'clipped' is to be done in backward, but reads 'scalar.gradient_norm', which 'update.norm."), std::string::npos)
      << said;
}

TEST_F(Immediate, WhatIsMadeOfScalarsMovesIntoTheWindow) {
  if (const Status done = differentiate(*c); !done) FAIL();
  graph.tensor(graph.tensor(w).gradient).immediate = true;
  ASSERT_EQ(through({update, window}), "");
  const galley_tensor doubled = node("doubled", "add", {scalar(GALLEY_SCALAR_LOSS_SEED), scalar(GALLEY_SCALAR_LOSS_SEED)}, Section::Update);
  const galley_tensor rho = node("rho", "add", {doubled, doubled}, Section::Update);
  node("unread", "add", {doubled, doubled}, Section::Update);
  node("sw", "step_by_element", {w, graph.tensor(w).gradient, rho}, Section::Update, {});
  node("sv", "step_by_element", {v, graph.tensor(v).gradient, rho}, Section::Update, {});
  ASSERT_EQ(cause(immediate(*c)), "");
  EXPECT_EQ(verified(), "");
  const std::string before = text(Section::Window), late = text(Section::Update);
  EXPECT_TRUE(before.ends_with("add(scalar.loss_seed, scalar.loss_seed) -> doubled\nadd(doubled, doubled) -> rho\n")) << before;
  EXPECT_NE(text(Section::Backward).find("step_by_element(w, grad.w, rho)"), std::string::npos);
  EXPECT_NE(late.find("step_by_element(v, grad.v, rho)"), std::string::npos) << late;
  EXPECT_NE(late.find("add(doubled, doubled) -> unread"), std::string::npos) << "nobody in backward reads it";
}

TEST_F(Immediate, WhatIsMadeOfStatesIsNamed) {
  if (const Status done = differentiate(*c); !done) FAIL();
  graph.tensor(graph.tensor(w).gradient).immediate = true;
  ASSERT_EQ(through({update, window}), "");
  const galley_tensor d = tensor("d", {1}, GALLEY_KIND_STATE), rho = node("rho", "add", {d, d}, Section::Update);
  node("sw", "step_by_element", {w, graph.tensor(w).gradient, rho}, Section::Update, {});
  EXPECT_EQ(cause(immediate(*c)), "'sw' is to be done in backward, but reads 'rho', which 'rho' makes in the update, for all parameters");
}

}  // namespace
}  // namespace galley::hand
