// What a strategy makes of the model, and of what is saved.
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

class Rewrite : public Hand {
 protected:
  Rewrite() {
    w = parameter("w");
    node("l", "loss", {node("y", "mul", {input("x"), w})}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
  }
  galley_tensor w;
};

TEST_F(Rewrite, WhatIsReplacedIsReadByNobodyElse) {
  use("doubles", {});
  ASSERT_EQ(cause(rewrite(*c)), "");
  ASSERT_EQ(verified(), "");
  EXPECT_EQ(text(Section::Forward),
            "mul(x, w) -> y\n"
            "add(y, y) -> doubled\n"
            "loss(doubled) -> scalar.loss\n");
}

TEST_F(Rewrite, TheNextStrategySeesWhatTheFirstHasMade) {
  use("doubles", {});
  use("doubles", {});
  ASSERT_EQ(cause(rewrite(*c)), "");
  ASSERT_EQ(verified(), "");
  EXPECT_EQ(text(Section::Forward),
            "mul(x, w) -> y\n"
            "add(y, y) -> redoubled\n"
            "add(redoubled, redoubled) -> doubled\n"
            "loss(doubled) -> scalar.loss\n");
}

TEST_F(Rewrite, WithoutStrategiesNothingChanges) {
  const std::string before = text(Section::Forward);
  ASSERT_EQ(cause(rewrite(*c)), "");
  EXPECT_EQ(text(Section::Forward), before);
}

TEST_F(Rewrite, WhatIsSavedInAParametersPlace) {
  use("doubles", {});
  options.purpose = Purpose::Train;
  ASSERT_EQ(cause(export_model(*c)), "");
  EXPECT_EQ(text(Section::Export), "mul(w, w) -> squared\n");
  ASSERT_EQ(draft.exports.values.size(), 1u);
  EXPECT_EQ(draft.exports.values[0].parameter, w);
}

}  // namespace
}  // namespace galley::hand
