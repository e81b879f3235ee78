// What strategies claim, append and decide: accumulate, freeze, the optimizers' nodes and states, recompute.
#include "galley/saved.h"
#include "host/plugins/abi.hpp"
#include "tests/strategies/support.hpp"

namespace galley::test {
namespace {

class Decisions : public GraphFixture {
 protected:
  std::string trainable(const LoadedStrategy& s, galley_tensor t) {
    Claimed value;
    const std::string error = claim(s, t, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_TRAINABLE, &value);
    if (!error.empty()) return error;
    if (!value.strength) return "-";
    return std::string(value.strength == GALLEY_STRONG ? "strong " : "weak ") + std::to_string(value.number);
  }
  double attr(const GraphNode& node, const char* name) const {
    const galley_attr* a = node.attrs.find(name);
    return !a                           ? -1
           : a->type == GALLEY_ATTR_I64 ? static_cast<double>(*static_cast<const int64_t*>(a->data))
                                        : *static_cast<const double*>(a->data);
  }
};

TEST_F(Decisions, AccumulateSaysHowManyMicroBatches) {
  const auto accumulate = strategy("accumulate", {{"steps", Value(int64_t{8})}});
  Claimed value;
  EXPECT_EQ(claim(*accumulate, 0, GALLEY_SUBJECT_RUN, GALLEY_FACET_WINDOW, &value), "");
  EXPECT_EQ(value.strength, GALLEY_STRONG);
  EXPECT_EQ(value.number, 8);
  const galley_tensor w = parameter("w", {2});
  EXPECT_EQ(claim(*accumulate, w, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_TRAINABLE, &value), "");
  EXPECT_EQ(value.strength, 0u);
  EXPECT_EQ(refusal("accumulate", {{"steps", Value(int64_t{0})}}),
            "recipe.lua:3: 'steps' of accumulate must be a whole number in [1, 65536], not 0");
}

TEST_F(Decisions, FreezeByPattern) {
  const galley_tensor embedding = parameter("model.embed_tokens.weight", {2}), q = parameter("model.layers.0.self_attn.q_proj.weight", {2}),
                      norm = parameter("model.norm.weight", {2});
  const auto some = strategy("freeze", {{"patterns", list({"*embed*", "model.layers.?.*"})}});
  EXPECT_EQ(trainable(*some, embedding), "strong 0");
  EXPECT_EQ(trainable(*some, q), "strong 0");
  EXPECT_EQ(trainable(*some, norm), "-");
  const auto all_but = strategy("freeze", {{"except", Value("*norm*")}});
  EXPECT_EQ(trainable(*all_but, embedding), "strong 0");
  EXPECT_EQ(trainable(*all_but, norm), "strong 1");
  const auto both = strategy("freeze", {{"patterns", Value("model.*")}, {"except", Value("*q_proj*")}});
  EXPECT_EQ(trainable(*both, q), "strong 1");
  EXPECT_EQ(trainable(*both, norm), "strong 0");
}

TEST_F(Decisions, FreezeLeavesAdaptersAlone) {
  parameter("w", {2});
  graph.author.use = 0;
  owner = "lora";
  const galley_tensor a = parameter("base_model.model.w.lora_A.weight", {2});
  graph.author.use = no_use;
  EXPECT_EQ(trainable(*strategy("freeze", {{"except", Value("w")}}), a), "-");
  EXPECT_EQ(trainable(*strategy("freeze", {{"patterns", Value("*lora_A*")}}), a), "strong 0");
}

TEST_F(Decisions, FreezeNeedsAName) { EXPECT_EQ(refusal("freeze", {}), "recipe.lua:3: freeze: nothing is named"); }

TEST_F(Decisions, OptimizersClaimWeaklyWhatIsTrained) {
  const galley_tensor w = parameter("w", {2});
  for (const char* name : {"adam", "adamw", "lion", "sgd"}) {
    const auto s = strategy(name, {{"lr", Value(0.1)}});
    Claimed value;
    EXPECT_EQ(claim(*s, w, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_UPDATE, &value, true), "");
    EXPECT_EQ(value.strength, GALLEY_WEAK);
    EXPECT_EQ(value.text, name);
    EXPECT_EQ(claim(*s, w, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_UPDATE, &value, false), "");
    EXPECT_EQ(value.strength, 0u);
  }
}

TEST_F(Decisions, OptimizersTakeTheParametersThatTheyName) {
  const galley_tensor w = parameter("h.0.w", {4, 3}), g = parameter("grad.h.0.w", {4, 3}),
                      b = parameter("h.0.b", {3}, GALLEY_TENSOR_NO_DECAY), gb = parameter("grad.h.0.b", {3}), rest = parameter("rest", {3}),
                      gr = parameter("grad.rest", {3});
  const auto group = [](const char* match, double factor, Value decay) {
    return Value(Table{{"match", Value(match)}, {"lr_factor", Value(factor)}, {"weight_decay", std::move(decay)}});
  };
  const Value groups(List{group("*.b", 0.5, Value(0.25)), group("h.*", 2, Value())});
  const auto s =
      strategy("adamw", {{"lr", Value(0.1)}, {"weight_decay", Value(0.125)}, {"parameters", Value("h.0.*")}, {"groups", groups}});
  Claimed value;
  EXPECT_EQ(claim(*s, w, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_UPDATE, &value, true), "");
  EXPECT_EQ(value.strength, GALLEY_STRONG);
  EXPECT_EQ(value.text, "adamw, h.*");
  EXPECT_EQ(claim(*s, b, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_UPDATE, &value, true), "");
  EXPECT_EQ(value.text, "adamw, *.b");  // the first that matches
  EXPECT_EQ(claim(*s, rest, GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_UPDATE, &value, true), "");
  EXPECT_EQ(value.strength, 0u);

  for (const auto& [parameter, gradient] : {std::pair(w, g), std::pair(b, gb), std::pair(rest, gr)})
    ASSERT_EQ(build(*s, parameter, gradient), "");
  const auto node = [&](size_t i) -> const GraphNode& { return graph.node(graph.section(Section::Update)[i]); };
  const auto factor = [&](size_t i) {
    for (const ScalarSlot& slot : draft.scalars.slots)
      if (slot.tensor_name == graph.tensor(node(i).inputs[2]).name) return slot.factor;
    return 0.0;
  };
  EXPECT_EQ(std::vector({factor(0), factor(1), factor(2)}), (std::vector<double>{2, 0.5, 1}));
  EXPECT_EQ(std::vector({attr(node(0), "weight_decay"), attr(node(1), "weight_decay"), attr(node(2), "weight_decay")}),
            (std::vector<double>{0.125, 0.25, 0.125}));
}

TEST_F(Decisions, AdamWKeepsTwoStates) {
  const galley_tensor w = parameter("w", {4, 3}), g = parameter("grad.w", {4, 3}), bias = parameter("b", {3}, GALLEY_TENSOR_NO_DECAY),
                      gb = parameter("grad.b", {3});
  const auto adamw = strategy("adamw", {{"lr", Value(Schedule{"s", {0.5}})}, {"betas", list({0.8, 0.9})}, {"weight_decay", Value(0.1)}});
  ASSERT_EQ(build(*adamw, w, g), "");
  ASSERT_EQ(build(*adamw, bias, gb), "");
  ASSERT_EQ(graph.section(Section::Update).size(), 2u);
  const GraphNode& node = graph.node(graph.section(Section::Update)[0]);
  EXPECT_STREQ(node.op->name, "adamw_step");
  const galley_tensor m = graph.find("w.exp_avg"), v = graph.find("w.exp_avg_sq");
  EXPECT_EQ(node.inputs, (std::vector<galley_tensor>{w, g, graph.find("option.0.lr"), *draft.scalars.get(GALLEY_SCALAR_APPLIED_STEP),
                                                     *draft.scalars.get(GALLEY_SCALAR_GRADIENT_FACTOR),
                                                     *draft.scalars.get(GALLEY_SCALAR_APPLY), m, v, 0}));
  EXPECT_EQ(graph.tensor(m).kind, GALLEY_KIND_STATE);
  EXPECT_EQ(graph.tensor(m).shape, (Shape{4, 3}));
  EXPECT_EQ(graph.tensor(v).dtype, GALLEY_F32);
  EXPECT_EQ(attr(node, "beta1"), 0.8);
  EXPECT_EQ(attr(node, "weight_decay"), 0.1);
  EXPECT_EQ(attr(graph.node(graph.section(Section::Update)[1]), "weight_decay"), 0);  // biases and norms are spared
}

TEST_F(Decisions, DecayOnAllSparesNothing) {
  for (const char* name : {"adam", "adamw", "lion", "sgd"}) {
    const std::string n = name;
    const galley_tensor b = parameter(n + ".b", {3}, GALLEY_TENSOR_NO_DECAY), g = parameter("grad." + n + ".b", {3});
    graph.section(Section::Update).clear();
    const auto s = strategy(name, {{"lr", Value(0.1)}, {"weight_decay", Value(0.25)}, {"decay_on", Value("all")}});
    ASSERT_EQ(build(*s, b, g), "");
    EXPECT_EQ(attr(graph.node(graph.section(Section::Update)[0]), "weight_decay"), 0.25);
  }
}

TEST_F(Decisions, StatesAreAsFewAsTheOptionsNeed) {
  const galley_tensor w = parameter("w", {3}), g = parameter("grad.w", {3});
  ASSERT_EQ(build(*strategy("sgd", {{"lr", Value(0.1)}}), w, g), "");
  EXPECT_EQ(graph.find("w.momentum_buffer"), 0u);
  ASSERT_EQ(build(*strategy("sgd", {{"lr", Value(0.1)}, {"momentum", Value(0.9)}}), w, g), "");
  EXPECT_NE(graph.find("w.momentum_buffer"), 0u);
  ASSERT_EQ(build(*strategy("adamw", {{"lr", Value(1e-3)}, {"amsgrad", Value(true)}}), w, g), "");
  EXPECT_NE(graph.find("w.max_exp_avg_sq"), 0u);
}

TEST_F(Decisions, ClipTouchesOneScalar) {
  ASSERT_EQ(build(*strategy("clip", {{"norm", Value(2.0)}}), 0, 0), "");
  const GraphNode& node = graph.node(graph.section(Section::Update)[0]);
  EXPECT_EQ(node.inputs, (std::vector<galley_tensor>{*draft.scalars.get(GALLEY_SCALAR_GRADIENT_NORM),
                                                     *draft.scalars.get(GALLEY_SCALAR_GRADIENT_FACTOR)}));
  EXPECT_EQ(attr(node, "max_norm"), 2.0);
}

TEST_F(Decisions, ClipByValueTouchesEachGradient) {
  const galley_tensor w = parameter("w", {4, 3}), g = parameter("grad.w", {4, 3});
  ASSERT_EQ(build(*strategy("clip", {{"value", Value(2.0)}}), w, g), "");
  ASSERT_EQ(graph.section(Section::Update).size(), 1u);
  const GraphNode& node = graph.node(graph.section(Section::Update)[0]);
  EXPECT_EQ(node.inputs, (std::vector<galley_tensor>{g, *draft.scalars.get(GALLEY_SCALAR_GRADIENT_FACTOR)}));
  EXPECT_EQ(attr(node, "max_value"), 2.0);
  // The factor has the norm in it before elements are clamped.
  ASSERT_EQ(build(*strategy("clip", {{"value", Value(2.0)}, {"norm", Value(1.0)}}), w, g), "");
  ASSERT_EQ(graph.section(Section::Update).size(), 3u);
  EXPECT_STREQ(graph.node(graph.section(Section::Update)[1]).op->name, "clip_factor");
  EXPECT_STREQ(graph.node(graph.section(Section::Update)[2]).op->name, "clip_values");
  EXPECT_EQ(refusal("clip", {}), "recipe.lua:3: clip: neither 'norm' nor 'value' is given");
}

TEST_F(Decisions, PerturbScalesTheLossAfterWhoeverChoosesTheScale) {
  const auto amp = strategy("amp", {{"compute", Value("fp16")}}), perturb = strategy("perturb", {});
  EXPECT_GT(perturb->rewrite()->phase, amp->rewrite()->phase);
  ASSERT_EQ(rewrite(*perturb, Section::Window), "");
  ASSERT_EQ(graph.section(Section::Window).size(), 1u);
  const GraphNode& node = graph.node(graph.section(Section::Window)[0]);
  EXPECT_STREQ(node.op->name, "scale_loss");
  EXPECT_EQ(node.inputs, std::vector<galley_tensor>{*draft.scalars.get(GALLEY_SCALAR_LOSS_SCALE)});
  EXPECT_EQ(attr(node, "factor"), 0.75);
  const std::string two = NodeRun("scale_loss", sdk::Attrs().f("factor", 0.75)).in(GALLEY_F32, {2}, {1, 1}).infer();
  EXPECT_NE(two.find("loss_scale (2) has to be one element, F32"), std::string::npos) << two;
  EXPECT_EQ(refusal("perturb", {{"factor", Value(0.0)}}), "recipe.lua:3: 'factor' of perturb must be a number in (0, inf), not 0");
}

// ---- Recomputation ------------------------------------------------------------------------------------------------------------------

/// The peak of a model with nothing but saved tensors: the bytes of those that are kept.
galley_status kept_bytes(void* context, const uint32_t* choices, uint32_t, int64_t* out, galley_error*) {
  const auto& items = *static_cast<std::vector<galley_saved_item>*>(context);
  *out = 0;
  for (size_t i = 0; i < items.size(); ++i)
    if (choices[i] == GALLEY_KEEP) *out += items[i].bytes;
  return GALLEY_OK;
}

/// A model of `blocks` blocks: an embedding, and in each block two inner tensors and the input of the next block; after them a norm's
/// input.
std::vector<galley_saved_item> saved_of(int64_t blocks) {
  std::vector<galley_saved_item> items;
  const auto add = [&](int64_t block, uint64_t flags, double seconds) {
    galley_saved_item& item = items.emplace_back(new_struct<galley_saved_item>());
    item.name = item.op = "";
    item.bytes = 8;
    item.block = block;
    item.recompute_seconds = seconds;
    item.flags = flags;
  };
  add(-1, GALLEY_SAVED_RECOMPUTABLE | GALLEY_SAVED_BLOCK_INPUT, 1);  // enters block 0
  for (int64_t b = 0; b < blocks; ++b) {
    add(b, GALLEY_SAVED_RECOMPUTABLE, 1);
    add(b, 0, 0);                                                     // cannot be recomputed
    add(b, GALLEY_SAVED_RECOMPUTABLE | GALLEY_SAVED_BLOCK_INPUT, 1);  // enters the next block, the last one the final norm
  }
  add(-1, GALLEY_SAVED_RECOMPUTABLE, 1);
  return items;
}

/// One letter an item, 'k' kept, 'r' recomputed, 'e' recomputed for each block, 'o' offloaded; or the error.
std::string decided(Table options, std::vector<galley_saved_item> items, int64_t blocks, std::vector<uint32_t> choices = {}) {
  const auto s = strategy("recompute", std::move(options));
  std::vector<const galley_saved_item*> pointers;
  for (const auto& item : items) pointers.push_back(&item);
  auto set = new_struct<galley_saved_set>();
  set.items = pointers.data();
  set.n_items = pointers.size();
  set.blocks = blocks;
  set.context = &items;
  set.peak = kept_bytes;
  choices.resize(items.size(), GALLEY_KEEP);
  const Status status = call_plugin(s->caller(), "decide",
                                    [&](galley_error* error) { return s->saved()->decide(s->instance(), &set, choices.data(), error); });
  if (!status.ok()) return status.error().cause;
  std::string text;
  for (const uint32_t choice : choices) text += "kroe"[choice & 3];
  return text;
}
std::string recomputed(Table options, int64_t blocks) { return decided(std::move(options), saved_of(blocks), blocks); }

TEST(Recompute, KeepsWhatEntersEveryNthBlock) {
  EXPECT_EQ(recomputed({}, 3),
            "k"
            "rkk"
            "rkk"
            "rkk"
            "k");
  EXPECT_EQ(recomputed({{"every", Value(int64_t{1})}}, 3),
            "k"
            "rkk"
            "rkk"
            "rkk"
            "k");
  EXPECT_EQ(recomputed({{"every", Value(int64_t{2})}}, 4),
            "k"
            "rkr"
            "rkk"
            "rkr"
            "rkk"
            "k");
  EXPECT_EQ(recomputed({{"every", Value(int64_t{9})}}, 3),
            "k"
            "rkr"
            "rkr"
            "rkk"
            "k");
  EXPECT_EQ(recomputed({{"policy", Value("sqrt")}}, 4), recomputed({{"every", Value(int64_t{2})}}, 4));
  EXPECT_EQ(recomputed({{"policy", Value("none")}}, 2),
            "k"
            "kkk"
            "kkk"
            "k");
  EXPECT_EQ(refusal("recompute", {{"policy", Value("sqrt")}, {"every", Value(int64_t{2})}}),
            "recipe.lua:3: recompute: 'every' goes with the policy 'every', not with 'sqrt'");
  EXPECT_EQ(refusal("recompute", {{"budget", Value("1GiB")}, {"every", Value(int64_t{2})}}),
            "recipe.lua:3: recompute: a 'budget' chooses by itself: it goes without 'policy' and 'every'");
}

TEST(Recompute, KeepsTheModelsInputAlone) {
  EXPECT_EQ(recomputed({{"policy", Value("input")}}, 3),
            "k"
            "eke"
            "eke"
            "ekk"
            "k");
}

TEST(Recompute, CheapIsWhatTakesNoProduct) {
  std::vector<galley_saved_item> items = saved_of(2);
  items[1].flops = 1e6;  // of the first block; a tensor of the second takes none
  EXPECT_EQ(decided({{"policy", Value("cheap")}}, items, 2),
            "k"
            "kkk"
            "rkk"
            "k");
  EXPECT_EQ(decided({{"policy", Value("cheap")}}, items, 2, {GALLEY_KEEP, GALLEY_KEEP, GALLEY_KEEP, GALLEY_KEEP, GALLEY_OFFLOAD_TO(1)}),
            "kkkkokkk");
}

TEST(Recompute, LeavesWhatOthersHaveDecided) { EXPECT_EQ(decided({}, saved_of(1), 1, {GALLEY_KEEP, GALLEY_OFFLOAD_TO(1)}), "kokkk"); }

TEST(Recompute, ABudgetIsMetByWhatTakesLeastTime) {
  const auto within = [](const char* bytes, int64_t blocks) { return recomputed({{"budget", Value(bytes)}}, blocks); };
  EXPECT_EQ(within("88 B", 3), "kkkkkkkkkkk");
  EXPECT_EQ(within("87", 3), "krkkkkkkkkk") << "early blocks first";
  EXPECT_EQ(within("64", 3),
            "k"
            "rkk"
            "rkk"
            "rkk"
            "k");
  EXPECT_EQ(within("63", 3),
            "k"
            "rkr"
            "rkk"
            "rkk"
            "k");
  EXPECT_EQ(within("1KiB", 3), "kkkkkkkkkkk");
  EXPECT_EQ(within("8", 3),
            "recipe.lua:3: recompute: the plan takes at least 48 B of the memory that computes, whatever is recomputed; the budget is 8 B");
  auto items = saved_of(2);
  items[4].recompute_seconds = 0.5;
  EXPECT_EQ(decided({{"budget", Value("63")}}, items, 2), "kkkkrkkk") << "what takes fewer seconds a byte";
  const auto s = strategy("recompute", {{"budget", Value("1KiB")}});
  int64_t bytes = 0;
  galley_error error = GALLEY_ERROR_INIT;
  ASSERT_EQ(s->saved()->budget(s->instance(), &bytes, &error), GALLEY_OK) << error.text;
  EXPECT_EQ(bytes, 1024);
}

TEST(Recompute, ABudgetTakesWhatOthersAcceptIfThatIsFaster) {
  const uint32_t accepted = GALLEY_OFFLOAD_TO(1);
  auto items = saved_of(1);
  const double slow[] = {0, 2}, fast[] = {0, 0.5};
  for (const size_t i : {0u, 1u}) {
    items[i].accepted = &accepted;
    items[i].n_accepted = 1;
    items[i].offload_seconds_to = i ? slow : fast;
    items[i].n_memories = 2;
  }
  EXPECT_EQ(decided({{"budget", Value("39")}}, items, 1), "okkkk");
  EXPECT_EQ(decided({{"budget", Value("24")}}, items, 1), "orkkk");
  items[1].offload_seconds_to = fast;
  EXPECT_EQ(decided({{"budget", Value("24")}}, items, 1), "ookkk");
}

}  // namespace
}  // namespace galley::test
