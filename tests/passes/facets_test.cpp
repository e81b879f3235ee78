// What the host makes of claims: what it takes, and what it refuses of whom.
#include "tests/passes/hand.hpp"

namespace galley::hand {
namespace {

/// x · w and its loss; the test plugin "claims" says one thing.
class Facets : public Hand {
 protected:
  Facets() {
    w = parameter("w");
    node("l", "loss", {node("y", "mul", {input("x"), w})}, Section::Forward, {*draft.scalars.get(GALLEY_SCALAR_LOSS)});
  }
  /// "" or why the claim does not hold.
  std::string claimed(Table what, Status (*pass)(Compilation&) = claim_model) {
    use("claims", std::move(what));
    return cause(pass(*c));
  }
  galley_tensor w;
};

TEST_F(Facets, Storage) {
  EXPECT_EQ(claimed({{"facet", "storage"}, {"value", "pair"}}), "");
  EXPECT_EQ(graph.tensor(w).storage.format, "pair");
  EXPECT_EQ(claimed({{"facet", "storage"}, {"value", "pears"}, {"strong", true}}),
            "claims (hand.lua:4): no plugin provides the format 'pears' claimed for 'w'");
}

TEST_F(Facets, AFormatThatNoUpdateCanWrite) {
  options.purpose = Purpose::Train;
  EXPECT_EQ(claimed({{"facet", "storage"}, {"value", "stone"}}),
            "claims (hand.lua:3): 'w' is to be trained, but the format 'stone' cannot be written by an update");
}

// What is only evaluated, sampled from or exported writes nothing.
TEST_F(Facets, AFormatThatNoUpdateCanWriteWithoutOne) {
  EXPECT_EQ(claimed({{"facet", "storage"}, {"value", "stone"}}), "");
  EXPECT_EQ(graph.tensor(w).storage.format, "stone");
}

TEST_F(Facets, AFormatOfStatesIsWrittenByUpdates) {
  tensor("momentum", {4}, GALLEY_KIND_STATE);
  train({w});
  EXPECT_EQ(claimed({{"facet", "storage"}, {"value", "stone"}, {"of", "momentum"}}, claim_made),
            "claims (hand.lua:3): updates write the state 'momentum', but the format 'stone' cannot be written by an update");
}

TEST_F(Facets, AllIsFrozen) {
  EXPECT_EQ(claimed({{"facet", "trainable"}, {"number", int64_t{0}}}), "nothing is left to train: every parameter is frozen");
}

TEST_F(Facets, StrengthsAndAnswersThatThereAreNot) {
  EXPECT_EQ(claimed({{"facet", "storage"}, {"value", "pair"}, {"strength", int64_t{4000000000}}}),
            "claims (hand.lua:3), plugin 'claims': claims 'storage' of 'w' with the strength 4000000000; there are GALLEY_WEAK and "
            "GALLEY_STRONG");
}

TEST_F(Facets, TrainableIsOneOfThree) {
  EXPECT_EQ(claimed({{"facet", "trainable"}, {"number", int64_t{7}}}),
            "claims (hand.lua:3): TRAINABLE of 'w' is 7; it is 0, 1 or GALLEY_TRAINABLE_WRITTEN");
}

TEST_F(Facets, WrittenIsNotTrained) {
  parameter("v");
  EXPECT_EQ(claimed({{"facet", "trainable"}, {"number", int64_t{GALLEY_TRAINABLE_WRITTEN}}, {"of", "w"}}), "");
  EXPECT_FALSE(graph.tensor(w).trainable());
  EXPECT_TRUE(graph.tensor(w).changes());
  EXPECT_EQ(c->decisions.trainable, std::vector<galley_tensor>{graph.find("v")});
}

TEST_F(Facets, NobodyUpdates) {
  options.purpose = Purpose::Train;
  EXPECT_EQ(cause(claim_model(*c)), "the recipe has no optimizer: 'w' is to be trained, but no strategy updates it");
}

TEST_F(Facets, WhoUpdatesHasAnUpdate) {
  options.purpose = Purpose::Train;
  EXPECT_EQ(claimed({{"facet", "update"}, {"value", "claims"}}), "claims (hand.lua:3) claims the update of 'w' but has no galley.update/1");
}

TEST_F(Facets, Placement) {
  EXPECT_EQ(claimed({{"facet", "placement"}, {"value", "spill"}}), "");
  EXPECT_EQ(graph.tensor(w).storage.placement, "spill");
  EXPECT_EQ(claimed({{"facet", "placement"}, {"value", "spil"}, {"strong", true}}),
            "claims (hand.lua:4): device 'hand' has no memory class 'spil', claimed for 'w'");
}

TEST_F(Facets, PlacementOfGradients) {
  train({w});
  ASSERT_EQ(cause(differentiate(*c)), "");
  EXPECT_EQ(claimed({{"facet", "placement"}, {"value", "spill"}, {"of", "grad.*"}}, claim_gradients), "");
  const galley_tensor gradient = graph.tensor(w).gradient;
  EXPECT_EQ(graph.tensor(gradient).storage.placement, "spill");
  graph.tensor(gradient).immediate = true;
  EXPECT_EQ(cause(claim_gradients(*c)), "claims (hand.lua:3): 'grad.w' is updated as soon as it is there, so it cannot lie in 'spill'");
}

TEST_F(Facets, Window) {
  EXPECT_EQ(claimed({{"facet", "window"}, {"number", int64_t{3}}}), "");
  EXPECT_EQ(c->decisions.micro_batches, 3);
  EXPECT_EQ(c->decisions.window_tokens, 0);
}

TEST_F(Facets, AWindowOfTokens) {
  EXPECT_EQ(claimed({{"facet", "window"}, {"number", int64_t{10}}, {"value", "tokens"}}), "");
  EXPECT_EQ(c->decisions.micro_batches, 12) << "four times the 3 of full rows of 4";
  EXPECT_EQ(c->decisions.window_tokens, 10);
}

TEST_F(Facets, WindowsThatCannotBe) {
  EXPECT_EQ(claimed({{"facet", "window"}, {"number", int64_t{0}}}), "claims (hand.lua:3): a window of 0 micro-batches");
  EXPECT_EQ(claimed({{"facet", "window"}, {"number", int64_t{7}}, {"value", "days"}, {"strong", true}}),
            "claims (hand.lua:4): a window of 7 'days'");
}

TEST_F(Facets, AWindowThatIsTooLong) {
  EXPECT_EQ(claimed({{"facet", "window"}, {"number", int64_t{262145}}}),
            "claims (hand.lua:3): a window of up to 262145 micro-batches of 4 tokens; there can be 262144");
}

TEST_F(Facets, AnOptionThatIsNoNumberHasNoSchedule) {
  use("claims", {{"facet", "window"}});
  const auto schedule = option_schedule(*c->strategies[0], "facet");
  ASSERT_FALSE(schedule.ok());
  EXPECT_EQ(schedule.error().cause, "hand.lua:3: claims asks for its option 'facet' as a number, and it has none");
}

TEST_F(Facets, RolesAreOfTheStandardPlugin) {
  const auto roles = bind_roles(*plugins);
  ASSERT_FALSE(roles.ok());
  EXPECT_EQ(roles.error().cause, "plugin 'models', which has the ops that every run needs, is not there");
}

}  // namespace
}  // namespace galley::hand
