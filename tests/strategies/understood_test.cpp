// Growth of the ABI, the plugins' half: each strategy of the tree refuses what says more than its SDK knows.
#include <set>

#include "galley/saved.h"
#include "tests/strategies/support.hpp"

namespace galley::test {
namespace {

/// What a host of a later version says: the table of the graph's readers, in which every tensor has one flag more.
uint64_t more = 0;
bool looked = false;
galley_status tensor_get(galley_graph* graph, galley_tensor t, galley_tensor_info* out, galley_error* error) {
  const galley_status status = GraphHandle::reader()->tensor_get(graph, t, out, error);
  looked = true;
  out->flags |= more;
  return status;
}

class Understood : public GraphFixture {
 protected:
  Understood() {
    reader.tensor_get = tensor_get;
    base.reader = &reader;
    model.graph = &base;
    update.graph = &base;
    w = parameter("model.layers.0.mlp.up_proj.weight", {4, 4});
    more = 0;
  }

  /// A claim about a parameter, a call for an update, and a choice of what is kept, with `bit` set; also of another revision.
  galley_status claims(const LoadedStrategy& s, uint64_t bit, uint32_t revision) {
    galley_subject subject = sdk::fresh<galley_subject>();
    subject.kind = GALLEY_SUBJECT_PARAMETER;
    subject.name = "model.layers.0.mlp.up_proj.weight";
    subject.owner = "";
    subject.tensor = subject.parameter = w;
    subject.tensor_flags = bit;
    subject.revision = revision;
    const galley_subject* const subjects[] = {&subject};
    auto call = sdk::fresh<galley_claim_call>();
    call.facet = GALLEY_FACET_UPDATE;
    call.subjects = subjects;
    call.n_subjects = 1;
    call.claim = [](void*, uint64_t, const galley_claim_value*, galley_error*) { return galley_status{GALLEY_OK}; };
    GraphHandle handle = {draft, &plugins(), &s};
    return s.claim()->claim(s.instance(), GraphHandle::reader(), handle.get(), &call, &error);
  }
  galley_status builds(const LoadedStrategy& s, uint64_t bit, uint32_t revision) {
    auto call = sdk::fresh<galley_update_call>();
    call.stage = GALLEY_STAGE_STEP;
    call.purpose = GALLEY_PURPOSE_TRAIN;
    call.flags = bit;
    call.revision = revision;
    GraphHandle handle = {draft, &plugins(), &s};
    return s.update()->build(s.instance(), GraphHandle::update_verbs(), handle.get(), &call, &error);
  }
  galley_status decides(const LoadedStrategy& s, uint64_t bit, uint32_t revision) {
    auto item = sdk::fresh<galley_saved_item>();
    item.name = item.op = "";
    item.flags = bit;
    item.revision = revision;
    const galley_saved_item* const items[] = {&item};
    auto set = sdk::fresh<galley_saved_set>();
    set.items = items;
    set.n_items = 1;
    uint32_t choice = GALLEY_KEEP;
    return s.saved()->decide(s.instance(), &set, &choice, &error);
  }
  /// Whether a rewrite of the model that looks at a tensor refuses it. One that looks at none has nothing to refuse.
  galley_status rewrites(const LoadedStrategy& s, uint64_t bit) {
    more = bit;
    looked = false;
    const Graph::As as(graph, {Section::Forward, 0});
    GraphHandle handle = {draft, &plugins(), &s};
    const galley_status status = s.rewrite()->model(s.instance(), &model, handle.get(), &error);
    return looked ? status : GALLEY_INVALID;
  }

  galley_graph_reader reader = *GraphHandle::reader();
  galley_graph_verbs base = *GraphHandle::verbs();
  galley_model_verbs model = *GraphHandle::model_verbs();
  galley_update_verbs update = *GraphHandle::update_verbs();
  galley_error error = GALLEY_ERROR_INIT;
  galley_tensor w = 0;
};

TEST_F(Understood, EachStrategyRefusesWhatItDoesNotKnow) {
  std::set<std::string> claimed, built, decided, rewritten;
  for (const auto& plugin : plugins().all()) {
    if (plugin->manifest.folder().parent_path().parent_path().filename() == "tests") continue;  // some of those are written by hand
    for (const StrategySpec& spec : plugin->manifest.strategies) {
      Table options;
      for (const OptionSpec& option : spec.options)
        if (option.required) options[option.name] = option.type == OptionType::Integer ? Value(int64_t{4}) : Value(0.01);
      if (!refusal(spec.name, options).empty()) continue;  // it wants more than a number
      SCOPED_TRACE(spec.name);
      const auto s = strategy(spec.name, options);
      const auto each_bit = [&](uint64_t known, const auto& call) {
        for (int bit = 0; bit < 32; ++bit)
          if (!(known >> bit & 1)) {
            looked = true;
            EXPECT_EQ(call(uint64_t{1} << bit), GALLEY_INVALID) << "bit " << bit;
            if (looked) {
              EXPECT_STREQ(error.text, "what Galley says has flags or a revision that this plugin does not know");
            }
          }
      };
      if (s->claim() && claimed.insert(spec.name).second) {
        each_bit(GALLEY_TENSOR_KNOWN, [&](uint64_t bit) { return claims(*s, bit, 1); });
        EXPECT_EQ(claims(*s, 0, 2), GALLEY_INVALID);
        EXPECT_EQ(claims(*s, 0, 1), GALLEY_OK) << error.text;
      }
      if (s->update() && built.insert(spec.name).second) {
        each_bit(0, [&](uint64_t bit) { return builds(*s, bit, 1); });
        EXPECT_EQ(builds(*s, 0, 2), GALLEY_INVALID);
      }
      if (s->saved() && decided.insert(spec.name).second) {
        each_bit(GALLEY_SAVED_KNOWN, [&](uint64_t bit) { return decides(*s, bit, 1); });
        EXPECT_EQ(decides(*s, 0, 2), GALLEY_INVALID);
      }
      if (s->rewrite() && s->rewrite()->model && rewritten.insert(spec.name).second)
        each_bit(GALLEY_TENSOR_KNOWN, [&](uint64_t bit) { return rewrites(*s, bit); });
    }
  }
  EXPECT_GT(claimed.size(), 12u);
  EXPECT_GE(built.size(), 10u);
  EXPECT_GE(decided.size(), 1u);
  EXPECT_GE(rewritten.size(), 2u);
}

}  // namespace
}  // namespace galley::test
