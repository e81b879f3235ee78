// What is measured of gradients, and in which order strategies append to the update.
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Update : public Hand {
 protected:
  Update() {
    options.purpose = Purpose::Train;
    galley_tensor w = parameter("w"), v = parameter("v");
    node("l", "loss", {node("z", "mul", {node("y", "mul", {input("x"), w}), v})}, Section::Forward,
         {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
  }
  std::string updated() {
    for (const auto pass : {claim_model, differentiate, update})
      if (const Status done = pass(*c); !done) return done.error().cause;
    return verified();
  }
};

TEST_F(Update, SumsOfSquaresThenTheNormThenTheSteps) {
  use("steps", {});
  ASSERT_EQ(updated(), "");
  EXPECT_EQ(text(Section::Update),
            "square(grad.w) -> sum of squares of grad.w\n"
            "square(grad.v) -> sum of squares of grad.v\n"
            "norm(scalar.loss_scale, sum of squares of grad.w, sum of squares of grad.v) -> scalar.gradient_norm, scalar.found_inf\n"
            "step(w, grad.w, scalar.apply) -> \n"
            "step(v, grad.v, scalar.apply) -> \n");
  ASSERT_EQ(c->squares, (std::vector<galley_tensor>{graph.find("sum of squares of grad.w"), graph.find("sum of squares of grad.v")}));
  EXPECT_EQ(graph.tensor(c->squares[1]).slice.offset, graph.tensor(c->squares[0]).slice.offset + 8);
}

TEST_F(Update, StagesComeInTheirOrderWhateverTheRecipes) {
  for (const char* name : {"looks-after", "steps", "looks-gradient", "looks-check"}) use(name, {});
  ASSERT_EQ(updated(), "");
  EXPECT_EQ(text(Section::Update),
            "square(grad.w) -> sum of squares of grad.w\n"
            "square(grad.v) -> sum of squares of grad.v\n"
            "norm(scalar.loss_scale, sum of squares of grad.w, sum of squares of grad.v) -> scalar.gradient_norm, scalar.found_inf\n"
            "copy(scalar.gradient_norm) -> update.copy.11\n"
            "copy(grad.w) -> update.w.copy.12\n"
            "copy(grad.v) -> update.v.copy.13\n"
            "step(w, grad.w, scalar.apply) -> \n"
            "step(v, grad.v, scalar.apply) -> \n"
            "copy(grad.w) -> update.w.copy.16\n"
            "copy(grad.v) -> update.v.copy.17\n");
}

TEST_F(Update, WhoWinsAnUpdateBuildsOne) {
  use("steps-idle", {});
  EXPECT_EQ(updated(), "steps-idle (hand.lua:3), plugin 'hand': claims the update of 'w', but none of the nodes that it builds writes 'w'");
}

TEST_F(Update, WhoWinsAnUpdateBuildsItInItsStage) {
  use("steps-late", {});
  EXPECT_EQ(updated(), "steps-late (hand.lua:3) claims the update of 'w', but it builds stage AFTER");
}

TEST_F(Update, ASkippedStepChangesNothing) {
  use("steps-hasty", {});
  EXPECT_EQ(updated(),
            "after pass 'test': node 'step' (op 'step', made by steps-hasty (hand.lua:3), plugin 'hand') writes 'w' and does not read "
            "GALLEY_SCALAR_APPLY, so a skipped step changes it");
}

TEST_F(Update, AnotherPurposeHasNoUpdate) {
  use("steps", {});
  options.purpose = Purpose::Gradients;
  ASSERT_EQ(updated(), "");
  EXPECT_EQ(text(Section::Update), "");
}

}  // namespace
}  // namespace galley::hand
