// LoRA on a small graph: which layers, which nodes, parameters with PEFT's names, adapters from files, merging.
#include <sys/stat.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "host/base/json.hpp"
#include "host/base/safetensors.hpp"
#include "tests/strategies/support.hpp"

namespace galley::test {
namespace {

/// An embedding, two blocks of q_proj (with a bias) and v_proj, a head. `transposed`: weights as Conv1D has them.
class Lora : public GraphFixture {
 protected:
  void make_model(bool tied = false, bool transposed = false) {
    GraphTensor ids;
    ids.name = "input_ids";
    ids.dtype = GALLEY_I32;
    ids.shape = {2, 8};
    ids.kind = GALLEY_KIND_INPUT;
    const galley_tensor table =
        parameter("model.embed_tokens.weight", {11, 4}, GALLEY_TENSOR_EMBEDDING | (tied ? GALLEY_TENSOR_HEAD : 0ull));
    galley_tensor x = node("embedding", "model.embed_tokens", {graph.make(std::move(ids)).value(), table});
    for (graph.author.block = 0; graph.author.block < 2; ++graph.author.block) {
      const std::string at = "model.layers." + std::to_string(graph.author.block) + ".self_attn.";
      AttrList attrs;
      if (transposed) attrs.set("transposed", int64_t{1});
      const galley_tensor q =
          node("linear", at + "q_proj",
               {x, parameter(at + "q_proj.weight", {4, 4}), parameter(at + "q_proj.bias", {4}, GALLEY_TENSOR_NO_DECAY)}, attrs);
      const galley_tensor v =
          node("linear", at + "v_proj", {x, parameter(at + "v_proj.weight", transposed ? Shape{4, 6} : Shape{6, 4})}, attrs);
      sums.push_back(v);
      x = node("add", at + "sum", {x, q});
    }
    graph.author.block = -1;
    logits = node("linear", "lm_head", {x, tied ? table : parameter("lm_head.weight", {11, 4}, GALLEY_TENSOR_HEAD)});
    sink = node("scale", "sink", {logits});
  }
  std::vector<std::string> names(uint32_t kind) const {
    std::vector<std::string> out;
    for (galley_tensor t = 1; t <= graph.tensor_count(); ++t)
      if (graph.tensor(t).kind == kind && graph.tensor(t).name.starts_with("base_model.")) out.push_back(graph.tensor(t).name);
    return out;
  }
  Value config() const {
    // Beside it lies the model card.
    EXPECT_EQ(draft.exports.documents.size(), 2u);
    const auto& documents = draft.exports.documents;
    const auto at = std::find_if(documents.begin(), documents.end(), [](const auto& d) { return d.file.ends_with("adapter_config.json"); });
    if (at == documents.end()) {
      ADD_FAILURE() << "no adapter_config.json is saved";
      return Value();
    }
    return parse_json(at->text, "adapter_config.json").value();
  }
  static double alpha_of(const GraphNode& node) { return *static_cast<const double*>(node.attrs.find("alpha")->data); }
  static Value at(const Value& table, const char* key) { return table.as<Table>()->at(key); }

  /// A folder as PEFT writes one.
  fs::path adapter(const std::string& config_text, const std::vector<safetensors::Item>& items) {
    const fs::path folder =
        fs::path(testing::TempDir()) / ("galley-adapter-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::create_directories(folder);
    std::ofstream(folder / "adapter_config.json") << config_text;
    auto writer = safetensors::Writer::create(folder / "adapter_model.safetensors", items).value();
    for (const auto& item : writer.items()) {
      std::vector<std::byte> bytes(tensor_files::tensor_bytes(item.dtype, item.shape).value());
      EXPECT_TRUE(writer.write(item.name, bytes).ok());
    }
    EXPECT_TRUE(writer.finish().ok());
    return folder;
  }
  static safetensors::Item item(const std::string& name, std::vector<int64_t> shape) {
    return {"base_model.model." + name, safetensors::Dtype::F32, std::move(shape)};
  }
  /// A and B for q_proj of both blocks.
  static std::vector<safetensors::Item> q_items(int64_t rank = 2) {
    std::vector<safetensors::Item> out;
    for (const char* block : {"0", "1"}) {
      const std::string module = std::string("model.layers.") + block + ".self_attn.q_proj.";
      out.push_back(item(module + "lora_A.weight", {rank, 4}));
      out.push_back(item(module + "lora_B.weight", {4, rank}));
    }
    return out;
  }
  /// A rewrite with the adapter in a folder: "" or what is wrong, without the folder's name.
  std::string continued(const fs::path& folder) {
    auto made = LoadedStrategy::create(plugins(), Use{"lora", {{"path", Value(folder.string())}}, {"recipe.lua", 3}, {}});
    std::string text = made.ok() ? "" : made.error().cause;
    if (made.ok()) {
      lora = std::move(made).value();
      text = rewrite(*lora);
    }
    for (size_t found = text.find(folder.string()); found != std::string::npos; found = text.find(folder.string()))
      text.replace(found, folder.string().size(), "…");
    return text;
  }

  std::unique_ptr<const LoadedStrategy> lora;
  std::vector<galley_tensor> sums;
  galley_tensor logits = 0, sink = 0;
};

const char* const q_config =
    R"({"peft_type": "LORA", "r": 2, "lora_alpha": 8, "target_modules": ["q_proj"],
        "lora_dropout": 0.25, "bias": "none", "use_dora": false})";

TEST_F(Lora, StandsBesideLinearNodes) {
  make_model();
  const auto s =
      strategy("lora", {{"rank", Value(int64_t{2})}, {"alpha", Value(8.0)}, {"targets", list({"q_proj"})}, {"dropout", Value(0.1)}});
  ASSERT_EQ(rewrite(*s), "");
  EXPECT_EQ(names(GALLEY_KIND_PARAMETER), (std::vector<std::string>{"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
                                                                    "base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight",
                                                                    "base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight",
                                                                    "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"}));
  const std::string prefix = "base_model.model.model.layers.1.self_attn.q_proj";
  const GraphTensor &a = graph.tensor(graph.find(prefix + ".lora_A.weight")), &b = graph.tensor(graph.find(prefix + ".lora_B.weight"));
  EXPECT_EQ(a.shape, (Shape{2, 4}));
  EXPECT_EQ(b.shape, (Shape{4, 2}));
  EXPECT_EQ(a.initial.op, "random_uniform");
  EXPECT_EQ(*static_cast<const double*>(a.initial.attrs.find("high")->data), 0.5);  // 1 / √4
  EXPECT_EQ(b.initial.op, "");
  EXPECT_EQ(a.flags, GALLEY_TENSOR_LATE_GRADIENT);
  EXPECT_EQ(b.flags, 0u);
  EXPECT_EQ(a.saved.file, "adapter/adapter_model.safetensors");
  EXPECT_EQ(a.saved.name, prefix + ".lora_A.weight");

  // Reader ← add ← (q_proj, alpha · B ← A ← dropout ← x).
  const GraphNode& sum = producer(graph.find("model.layers.1.self_attn.sum"));
  const GraphNode& added = producer(sum.inputs[1]);
  EXPECT_EQ(added.name, prefix + ".lora");
  EXPECT_EQ(added.attrs.find("alpha"), nullptr);
  EXPECT_EQ(producer(added.inputs[0]).name, "model.layers.1.self_attn.q_proj");
  const GraphNode &times_b = producer(added.inputs[1]), &times_a = producer(times_b.inputs[0]), &dropped = producer(times_a.inputs[0]);
  EXPECT_EQ(alpha_of(times_b), 4.0);
  EXPECT_EQ(times_a.attrs.find("alpha"), nullptr);
  EXPECT_EQ(times_b.inputs[1], b.id);
  EXPECT_EQ(times_a.inputs[1], a.id);
  EXPECT_STREQ(dropped.op->name, "dropout");
  EXPECT_EQ(dropped.inputs[0], producer(added.inputs[0]).inputs[0]);
  EXPECT_EQ(added.block, 1);

  const Value saved = config();
  EXPECT_EQ(at(saved, "r"), Value(int64_t{2}));
  EXPECT_EQ(at(saved, "lora_alpha"), Value(int64_t{8}));
  EXPECT_EQ(at(saved, "lora_dropout"), Value(0.1));
  EXPECT_EQ(at(saved, "target_modules"), list({"q_proj"}));
  EXPECT_EQ(at(saved, "task_type"), Value("CAUSAL_LM"));
  EXPECT_EQ(at(saved, "fan_in_fan_out"), Value(false));
}

TEST_F(Lora, AllLinearSparesTheHead) {
  make_model();
  ASSERT_EQ(rewrite(*strategy("lora", {{"rank", Value(int64_t{1})}, {"rslora", Value(true)}})), "");
  EXPECT_EQ(names(GALLEY_KIND_PARAMETER).size(), 8u);
  EXPECT_EQ(at(config(), "target_modules"), list({"q_proj", "v_proj"}));
}

TEST_F(Lora, RankStabilizedScaling) {
  make_model();
  ASSERT_EQ(
      rewrite(*strategy(
          "lora", {{"rank", Value(int64_t{4})}, {"alpha", Value(6.0)}, {"rslora", Value(true)}, {"targets", Value("layers.0.*.q_*")}})),
      "");
  EXPECT_EQ(alpha_of(producer(graph.find("base_model.model.model.layers.0.self_attn.q_proj.lora_B"))), 3.0);
  // Only one of two q_proj: the configuration has to name it whole.
  EXPECT_EQ(at(config(), "target_modules"), list({"model.layers.0.self_attn.q_proj"}));
}

TEST_F(Lora, OnATiedHead) {
  make_model(true);
  ASSERT_EQ(rewrite(*strategy("lora", {{"rank", Value(int64_t{2})}, {"targets", list({"lm_head", "v_proj"})}})), "");
  EXPECT_NE(graph.find("base_model.model.lm_head.lora_A.weight"), 0u);
  EXPECT_EQ(graph.tensor(graph.find("base_model.model.lm_head.lora_B.weight")).shape, (Shape{11, 2}));
  EXPECT_EQ(producer(sink).inputs[0], graph.find("base_model.model.lm_head.lora"));
}

TEST_F(Lora, OnConv1D) {
  make_model(false, true);
  ASSERT_EQ(rewrite(*strategy("lora", {{"rank", Value(int64_t{2})}, {"targets", Value("v_proj")}})), "");
  const std::string prefix = "base_model.model.model.layers.0.self_attn.v_proj.";
  EXPECT_EQ(graph.tensor(graph.find(prefix + "lora_A.weight")).shape, (Shape{2, 4}));  // (rank, in), as PEFT has it
  EXPECT_EQ(graph.tensor(graph.find(prefix + "lora_B.weight")).shape, (Shape{6, 2}));
  EXPECT_EQ(at(config(), "fan_in_fan_out"), Value(true));
}

TEST_F(Lora, Claims) {
  make_model();
  const auto s = strategy("lora", {{"rank", Value(int64_t{2})}});
  ASSERT_EQ(rewrite(*s), "");
  Claimed value;
  EXPECT_EQ(claim(*s, graph.find("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"), GALLEY_SUBJECT_PARAMETER,
                  GALLEY_FACET_TRAINABLE, &value),
            "");
  EXPECT_EQ(value.strength, GALLEY_STRONG);
  EXPECT_EQ(value.number, 1);
  EXPECT_EQ(claim(*s, graph.find("lm_head.weight"), GALLEY_SUBJECT_PARAMETER, GALLEY_FACET_TRAINABLE, &value), "");
  EXPECT_EQ(value.strength, GALLEY_WEAK);
  EXPECT_EQ(value.number, 0);
}

TEST_F(Lora, TargetsThatAreNotThere) {
  make_model();
  EXPECT_EQ(rewrite(*strategy("lora", {{"rank", Value(int64_t{2})}, {"targets", list({"q_proj", "k_proj"})}})),
            "recipe.lua:3: lora: no linear layer is called 'k_proj'; the nearest are 'model.layers.0.self_attn.q_proj', "
            "'model.layers.0.self_attn.v_proj' and 'lm_head'");
  EXPECT_EQ(refusal("lora", {}), "recipe.lua:3: lora: give a 'rank' for a new adapter, or the 'path' of one to continue");
  EXPECT_EQ(refusal("lora", {{"r", Value(int64_t{2})}}), "recipe.lua:3: unknown option 'r' of lora; did you mean 'rank'?");
}

TEST_F(Lora, GoesOnWithAnAdapter) {
  make_model();
  ASSERT_EQ(continued(adapter(q_config, q_items())), "");
  const std::string prefix = "base_model.model.model.layers.0.self_attn.q_proj.";
  const GraphTensor& a = graph.tensor(graph.find(prefix + "lora_A.weight"));
  EXPECT_TRUE(a.source.path.ends_with("/adapter_model.safetensors"));
  EXPECT_EQ(a.source.name, prefix + "lora_A.weight");
  EXPECT_EQ(a.flags, 0u);  // B is not zero: A has a gradient at once
  EXPECT_EQ(alpha_of(producer(graph.find(prefix + "lora_B"))), 4.0);
  EXPECT_EQ(at(config(), "lora_dropout"), Value(0.25));
  EXPECT_EQ(at(config(), "target_modules"), list({"q_proj"}));
}

TEST_F(Lora, AdaptersThatDoNotFit) {
  make_model();
  EXPECT_EQ(continued(adapter(q_config, q_items(3))),
            "recipe.lua:3: lora: '…/adapter_model.safetensors': 'base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight' is (3, "
            "4); this model takes (2, 4)");
}

TEST_F(Lora, AdaptersWithTooLittle) {
  make_model();
  auto items = q_items();
  items.pop_back();
  EXPECT_EQ(continued(adapter(q_config, items)),
            "recipe.lua:3: lora: '…/adapter_model.safetensors' has no 'base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight'");
}

TEST_F(Lora, AdaptersWithTooMuch) {
  make_model();
  auto items = q_items();
  items.push_back(item("model.embed_tokens.lora_embedding_A", {2, 11}));
  EXPECT_EQ(continued(adapter(q_config, items)),
            "recipe.lua:3: lora: '…/adapter_model.safetensors' has 'base_model.model.model.embed_tokens.lora_embedding_A', which lora does "
            "not use");
}

TEST_F(Lora, TheWeightOfAnAdaptedHead) {
  make_model();
  const char* const config_text = R"({"r": 2, "lora_alpha": 2, "target_modules": ["lm_head"]})";
  std::vector<safetensors::Item> items = {item("lm_head.lora_A.weight", {2, 4}), item("lm_head.lora_B.weight", {11, 2}),
                                          item("lm_head.base_layer.weight", {11, 4})};
  EXPECT_EQ(continued(adapter(config_text, items)), "");
}

TEST_F(Lora, TheWeightOfAResizedHead) {
  make_model();
  const char* const config_text = R"({"r": 2, "lora_alpha": 2, "target_modules": ["lm_head"]})";
  std::vector<safetensors::Item> items = {item("lm_head.lora_A.weight", {2, 4}), item("lm_head.lora_B.weight", {11, 2}),
                                          item("lm_head.base_layer.weight", {12, 4})};
  EXPECT_EQ(continued(adapter(config_text, items)),
            "recipe.lua:3: lora: '…/adapter_model.safetensors': 'base_model.model.lm_head.base_layer.weight' is (12, 4), but the model's "
            "is (11, 4); the adapter belongs to a "
            "model with another vocabulary");
}

TEST_F(Lora, RanksAndAlphasByPattern) {
  make_model();
  auto items = q_items();
  items[0].shape = {1, 4};
  items[1].shape = {4, 1};
  ASSERT_EQ(continued(adapter(R"({"r": 2, "lora_alpha": 8, "target_modules": "model\\.layers\\.\\d+\\.self_attn\\.q_proj",
                                  "rank_pattern": {"layers.0.self_attn.q_proj": 1}, "alpha_pattern": {"layers.0.*": 5}})",
                              items)),
            "");
  const auto alpha = [&](const char* block) {
    return alpha_of(producer(graph.find(std::string("base_model.model.model.layers.") + block + ".self_attn.q_proj.lora_B")));
  };
  EXPECT_EQ(alpha("0"), 5.0);
  EXPECT_EQ(alpha("1"), 4.0);
}

/// A configuration whose target_modules is a regular expression.
std::string by_pattern(const std::string& pattern) { return R"({"r": 2, "lora_alpha": 2, "target_modules": )" + json_quote(pattern) + "}"; }

// Python's {,2} begins at 0; the whole name has to match.
TEST_F(Lora, TargetsByPattern) {
  make_model();
  const std::string none =
      "recipe.lua:3: lora: none of the modules that '…/adapter_model.safetensors' was made for is a linear layer of this model";
  for (const char* pattern : {"q_proj", R"(model\.layers\.\d\.self_attn\.q_pro)", R"(.*q_proj(?=\.weight))"})
    EXPECT_EQ(continued(adapter(by_pattern(pattern), q_items())), none) << pattern;
  EXPECT_EQ(continued(adapter(by_pattern(R"((?i)MODEL\.layers\.[0-9]{,2}\.(?P<part>self_attn|mlp)\.[]qk]_proj)"), q_items())), "");
  EXPECT_EQ(names(GALLEY_KIND_PARAMETER).size(), 4u);
}

TEST_F(Lora, PatternsThatPythonReadsOtherwise) {
  make_model();
  const std::string begin = "recipe.lua:3: lora: …/adapter_config.json: 'target_modules': the regular expression '";
  for (const auto& [pattern, what] : std::initializer_list<std::pair<const char*, const char*>>{{R"(.*\hq_proj)", R"(\h)"},
                                                                                                {R"(\Qmodel.\E.*)", R"(\Q)"},
                                                                                                {R"(.*\p{L})", R"(\p)"},
                                                                                                {R"([[:alpha:]_.]+)", "[:"},
                                                                                                {"(?R)?q_proj", "(?R"},
                                                                                                {".*(?i)q_proj", "(?i"},
                                                                                                {"(*ACCEPT)", "(*A"},
                                                                                                {"(?<n>.*)q_proj", "(?<"}})
    EXPECT_EQ(continued(adapter(by_pattern(pattern), q_items())), begin + pattern + "' has '" + what + "', which is not supported here");
  EXPECT_EQ(continued(adapter(by_pattern("**"), q_items())), begin + "**' cannot be used: quantifier does not follow a repeatable item");
  EXPECT_EQ(
      continued(adapter(R"({"target_modules": ["q_proj"], "rank_pattern": {"q_proj(": 2}})", q_items())),
      "recipe.lua:3: lora: …/adapter_config.json: 'rank_pattern': the regular expression '(?:.*\\.)?(?:q_proj()' cannot be used: missing "
      "closing parenthesis");
}

// Without a limit on the steps these do not end within a lifetime, and no signal interrupts them.
TEST_F(Lora, PatternsThatGoWild) {
  make_model();
  const fs::path folder = adapter(by_pattern("(.*)*(.*)*(.*)*x"), q_items());
  EXPECT_EQ(continued(folder),
            "recipe.lua:3: lora: none of the modules that '…/adapter_model.safetensors' was made for is a linear layer of this model");
  EXPECT_EQ(
      continued(adapter(by_pattern("(.|..)*(.|..)*[xy]"), q_items())),
      "recipe.lua:3: lora: …/adapter_config.json: 'target_modules': the regular expression '(.|..)*(.|..)*[xy]' cannot be matched against "
      "'model.layers.0.self_attn.q_proj': match limit exceeded");
}

TEST_F(Lora, BiasesOfAnAdapter) {
  make_model();
  auto items = q_items();
  for (const char* block : {"0", "1"})
    items.push_back(item(std::string("model.layers.") + block + ".self_attn.q_proj.base_layer.bias", {4}));
  ASSERT_EQ(continued(adapter(R"({"r": 2, "lora_alpha": 2, "target_modules": ["q_proj"], "bias": "lora_only"})", items)), "");
  const galley_tensor own = graph.find("base_model.model.model.layers.1.self_attn.q_proj.base_layer.bias");
  ASSERT_NE(own, 0u);
  EXPECT_EQ(producer(graph.find("model.layers.1.self_attn.q_proj")).inputs[2], own);
  EXPECT_EQ(graph.tensor(own).flags, GALLEY_TENSOR_NO_DECAY);
}

TEST_F(Lora, ConfigurationsThatMeanSomethingElse) {
  make_model();
  const auto said = [&](const std::string& more) {
    std::string text = "{" + more;
    for (const char* usual : {R"("r": 2)", R"("lora_alpha": 2)", R"("target_modules": ["q_proj"])"}) {
      const std::string key(usual, std::string_view(usual).find(':') + 1);
      if (!more.starts_with(key)) text += std::string(", ") + usual;
    }
    return continued(adapter(text + "}", q_items()));
  };
  EXPECT_EQ(said(R"("r": 2, "r": 3)"), "recipe.lua:3: lora: …/adapter_config.json:1:10: the key \"r\" is there twice");
  const std::string begin = "recipe.lua:3: lora: …/adapter_config.json: ",
                    changes = " changes what the adapter computes, and lora does not do that; it has to be null or false, not ";
  EXPECT_EQ(said(R"("a_novelty": 3)"), begin + "'a_novelty'" + changes + "3");
  EXPECT_EQ(said(R"("peft_type": "IA3")"), begin + "'peft_type' has to be \"LORA\", not \"IA3\"");
  EXPECT_EQ(said(R"("r": 0)"), begin + "'r' has to be a whole number from 1 on, not 0");
  EXPECT_EQ(said(R"("bias": "some")"), begin + "'bias' has to be \"none\", \"lora_only\" or \"all\", not \"some\"");
  EXPECT_EQ(said(R"("init_lora_weights": "corda")"),
            begin +
                "'init_lora_weights' changes the base weights in a way that lora does not know; it has to be true, false, \"gaussian\", "
                "\"orthogonal\", \"pissa\", \"olora\", \"eva\" or \"loftq\", not \"corda\"");
  EXPECT_EQ(said(R"("init_lora_weights": "loftq")"), begin + "'loftq_config' has to be an object, since init_lora_weights is \"loftq\"");
  EXPECT_EQ(said(R"("target_modules": "(q_proj")"),
            begin + "'target_modules': the regular expression '(q_proj' cannot be used: missing closing parenthesis");
  EXPECT_EQ(said(R"("use_qalora": false, "qalora_group_size": 16, "loftq_config": {}, "revision": null)"), "");
}

TEST_F(Lora, WithoutTheMagnitudesThatItSays) {
  make_model();
  EXPECT_EQ(continued(adapter(R"({"r": 2, "lora_alpha": 2, "target_modules": ["q_proj"], "use_dora": true})", q_items())),
            "recipe.lua:3: lora: '…/adapter_model.safetensors' has no "
            "'base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector'");
}

// ---- What a recipe says beside the rank ------------------------------------------------------------------------------------------------

/// A table of rank_pattern or alpha_pattern.
Value entry(std::initializer_list<const char*> match, const char* key, Value value) {
  return Value(List{Value(Table{{"match", list(match)}, {key, std::move(value)}})});
}

TEST_F(Lora, TargetsOfRecipes) {
  make_model();
  ASSERT_EQ(rewrite(*strategy("lora", {{"rank", Value(int64_t{2})},
                                       {"targets", list({"re:model\\.layers\\.\\d\\.self_attn\\.[qv]_proj"})},
                                       {"exclude", list({"layers.1.*.v_proj"})}})),
            "");
  EXPECT_EQ(names(GALLEY_KIND_PARAMETER).size(), 6u);
  EXPECT_EQ(at(config(), "target_modules"), list({"model.layers.0.self_attn.v_proj", "q_proj"}));
}

TEST_F(Lora, RanksAndAlphasOfRecipes) {
  make_model();
  ASSERT_EQ(rewrite(*strategy("lora", {{"rank", Value(int64_t{2})},
                                       {"alpha", Value(8.0)},
                                       {"rank_pattern", entry({"v_proj"}, "rank", Value(int64_t{4}))},
                                       {"alpha_pattern", entry({"re:.*1.*q_proj"}, "alpha", Value(3.0))}})),
            "");
  const std::string prefix = "base_model.model.model.layers.1.self_attn.";
  EXPECT_EQ(graph.tensor(graph.find(prefix + "v_proj.lora_A.weight")).shape, (Shape{4, 4}));
  EXPECT_EQ(alpha_of(producer(graph.find(prefix + "v_proj.lora_B"))), 2.0);
  EXPECT_EQ(alpha_of(producer(graph.find(prefix + "q_proj.lora_B"))), 1.5);
  EXPECT_EQ(at(config(), "rank_pattern"), Value(Table{{"v_proj", Value(int64_t{4})}}));
  EXPECT_EQ(at(config(), "alpha_pattern"), Value(Table{{"model.layers.1.self_attn.q_proj", Value(int64_t{3})}}));
}

TEST_F(Lora, WordsThatMeanNothing) {
  make_model();
  const auto said = [&](const char* option, Value value) {
    return rewrite(*strategy("lora", {{"rank", Value(int64_t{2})}, {option, std::move(value)}}));
  };
  const std::string nearest = "; the nearest are 'model.layers.0.self_attn.q_proj', 'model.layers.0.self_attn.v_proj'";
  EXPECT_EQ(said("exclude", list({"k_proj"})), "recipe.lua:3: lora: no linear layer is called 'k_proj'" + nearest + " and 'lm_head'");
  EXPECT_EQ(said("targets", list({"re:k_proj"})), "recipe.lua:3: lora: no linear layer is called 're:k_proj'" + nearest + " and 'lm_head'");
  EXPECT_EQ(said("exclude", list({"all-linear"})), "recipe.lua:3: lora: 'exclude' leaves no linear layer of 'targets' to adapt");
  EXPECT_EQ(
      said("rank_pattern", entry({"lm_head"}, "rank", Value(int64_t{4}))),
      "recipe.lua:3: lora: 'rank_pattern': no adapted layer is called 'lm_head'; the nearest are 'model.layers.0.self_attn.q_proj' and "
      "'model.layers.0.self_attn.v_proj'");
  EXPECT_EQ(said("modules_to_save", list({"lm_heads"})),
            "recipe.lua:3: lora: 'modules_to_save': no module is called 'lm_heads'; the nearest are 'lm_head', 'model.layers' and 'model'");
  EXPECT_EQ(refusal("lora", {{"rank", Value(int64_t{2})}, {"targets", list({"re:(q_proj"})}}),
            "recipe.lua:3: lora: 'targets': the regular expression '(q_proj' cannot be used: missing closing parenthesis");
  EXPECT_EQ(refusal("lora", {{"rank", Value(int64_t{2})}, {"init", Value("pissa_niter")}}), "recipe.lua:3: lora: init = \"pissa_niter\"");
}

TEST_F(Lora, WholeModules) {
  make_model(true);
  ASSERT_EQ(rewrite(*strategy("lora", {{"rank", Value(int64_t{2})}, {"modules_to_save", list({"lm_head", "layers.0.self_attn.q_proj"})}})),
            "");
  // The head is trained apart from the embedding that it shared a table with; a layer that is trained whole has no adapter.
  const galley_tensor head = graph.find("base_model.model.lm_head.weight"),
                      q = graph.find("base_model.model.model.layers.0.self_attn.q_proj.weight");
  ASSERT_TRUE(head && q && graph.find("base_model.model.model.layers.0.self_attn.q_proj.bias"));
  EXPECT_EQ(graph.tensor(head).flags, GALLEY_TENSOR_HEAD);
  EXPECT_EQ(graph.tensor(head).initial.op, "copy");
  EXPECT_EQ(graph.tensor(head).saved.file, "adapter/adapter_model.safetensors");
  EXPECT_EQ(producer(graph.find("lm_head")).inputs[1], head);
  EXPECT_EQ(producer(graph.find("model.embed_tokens")).inputs[1], graph.find("model.embed_tokens.weight"));
  EXPECT_EQ(producer(graph.find("model.layers.0.self_attn.q_proj")).inputs[1], q);
  EXPECT_EQ(graph.find("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"), 0u);
  EXPECT_EQ(at(config(), "modules_to_save"), list({"lm_head", "model.layers.0.self_attn.q_proj"}));
}

TEST_F(Lora, BiasesOfARecipe) {
  make_model();
  ASSERT_EQ(rewrite(*strategy("lora", {{"rank", Value(int64_t{2})}, {"targets", Value("layers.0.*.q_proj")}, {"bias", Value("all")}})), "");
  const galley_tensor adapted = graph.find("base_model.model.model.layers.0.self_attn.q_proj.base_layer.bias"),
                      other = graph.find("base_model.model.model.layers.1.self_attn.q_proj.bias");
  ASSERT_TRUE(adapted && other);
  EXPECT_EQ(graph.tensor(adapted).initial.op, "copy");
  EXPECT_EQ(producer(graph.find("model.layers.1.self_attn.q_proj")).inputs[2], other);
}

TEST_F(Lora, WithMagnitudes) {
  make_model();
  const auto s =
      strategy("lora", {{"rank", Value(int64_t{2})}, {"alpha", Value(6.0)}, {"targets", Value("q_proj")}, {"dora", Value(true)}});
  ASSERT_EQ(rewrite(*s), "");
  const std::string prefix = "base_model.model.model.layers.1.self_attn.q_proj";
  const GraphTensor& m = graph.tensor(graph.find(prefix + ".lora_magnitude_vector"));
  EXPECT_EQ(m.shape, (Shape{4}));
  EXPECT_EQ(m.initial.op, "dora_norm");
  // Reader ← scale_columns ← (add ← (W·x, B·A·x), m, norm, bias).
  const GraphNode& scaled = producer(producer(graph.find("model.layers.1.self_attn.sum")).inputs[1]);
  EXPECT_STREQ(scaled.op->name, "scale_columns");
  ASSERT_EQ(scaled.inputs.size(), 4u);
  EXPECT_EQ(scaled.inputs[1], m.id);
  EXPECT_EQ(scaled.inputs[3], graph.find("model.layers.1.self_attn.q_proj.bias"));
  const galley_tensor norm = scaled.inputs[2];
  EXPECT_EQ(graph.tensor(norm).producer, 0u);
  ASSERT_EQ(producer(producer(scaled.inputs[0]).inputs[0]).inputs.size(), 2u);  // without the bias
  // The norm is made once a window.
  ASSERT_EQ(rewrite(*s, Section::Window), "");
  EXPECT_STREQ(producer(norm).op->name, "dora_norm");
  EXPECT_EQ(*static_cast<const double*>(producer(norm).attrs.find("scale")->data), 3.0);
  EXPECT_EQ(at(config(), "use_dora"), Value(true));
}

TEST_F(Lora, FoldersThatHoldNoAdapter) {
  make_model();
  const fs::path folder = adapter(q_config, q_items());
  fs::resize_file(folder / "adapter_model.safetensors", 20);
  EXPECT_EQ(continued(folder),
            "recipe.lua:3: lora: …/adapter_model.safetensors: the header's size is given as 504 bytes, but only 12 follow: the file is "
            "truncated");
  std::ofstream(folder / "adapter_config.json") << "[]";
  EXPECT_EQ(continued(folder), "recipe.lua:3: lora: …/adapter_config.json is not a JSON object");
  fs::remove(folder / "adapter_config.json");
  EXPECT_EQ(continued(folder), "recipe.lua:3: lora: cannot open '…/adapter_config.json': No such file or directory");
  ASSERT_EQ(::mkfifo((folder / "adapter_config.json").c_str(), 0600), 0);
  EXPECT_EQ(continued(folder), "recipe.lua:3: lora: cannot open '…/adapter_config.json': it is a named pipe");
  fs::remove(folder / "adapter_config.json");
  EXPECT_EQ(refusal("lora", {{"path", Value(folder.string())}, {"rank", Value(int64_t{2})}}),
            "recipe.lua:3: lora: 'rank' cannot stand beside 'path': the adapter's own configuration decides it");
}

TEST_F(Lora, SavesTheAdapterAlone) {
  make_model();
  const auto s = strategy("lora", {{"rank", Value(int64_t{2})}});
  ASSERT_EQ(rewrite(*s), "");
  ASSERT_EQ(rewrite(*s, Section::Export), "");
  EXPECT_EQ(draft.exports.model, GALLEY_EXPORT_OWN);
  EXPECT_TRUE(draft.exports.values.empty());
  // Unless something of the model is trained beside it.
  graph.tensor(graph.find("lm_head.weight")).flags |= GALLEY_TENSOR_TRAINABLE;
  ASSERT_EQ(rewrite(*s, Section::Export), "");
  EXPECT_EQ(draft.exports.model, GALLEY_EXPORT_BOTH);
}

class Merge : public Lora, public testing::WithParamInterface<bool> {};

TEST_P(Merge, AddsTheProductToTheWeight) {
  make_model(false, GetParam());
  const auto s =
      strategy("lora", {{"rank", Value(int64_t{2})}, {"alpha", Value(6.0)}, {"merge", Value(true)}, {"targets", Value("v_proj")}});
  ASSERT_EQ(rewrite(*s), "");
  ASSERT_EQ(rewrite(*s, Section::Export), "");
  EXPECT_EQ(draft.exports.model, GALLEY_EXPORT_MODEL);
  ASSERT_EQ(draft.exports.values.size(), 2u);

  // The nodes of the export, computed by their definitions.
  std::map<galley_tensor, std::pair<std::vector<int64_t>, std::vector<double>>> values;
  const auto value = [&](galley_tensor t) -> auto& {
    auto& slot = values[t];
    if (slot.second.empty()) {
      slot.first = {graph.tensor(t).shape.begin(), graph.tensor(t).shape.end()};
      for (int64_t i = 0; i < graph.tensor(t).count(); ++i)
        slot.second.push_back(0.1 * static_cast<double>((t * 7 + static_cast<uint64_t>(i) * 3) % 11) - 0.5);
    }
    return slot;
  };
  for (const galley_node n : graph.section(Section::Export)) {
    const GraphNode& g = graph.node(n);
    sdk::Attrs attrs;
    for (const galley_attr* a : g.attr_view) attrs.copy(*a);
    NodeRun run(g.op->name, std::move(attrs));
    for (const galley_tensor t : g.inputs) {
      if (t) run.in(GALLEY_F32, value(t).first, value(t).second);
      else run.absent();
    }
    ASSERT_EQ(run.infer(), "");
    run.reference();
    values[g.outputs[0]] = {{graph.tensor(g.outputs[0]).shape.begin(), graph.tensor(g.outputs[0]).shape.end()}, run.output(0)};
  }
  const std::string prefix = "base_model.model.model.layers.0.self_attn.v_proj.";
  const auto& a = value(graph.find(prefix + "lora_A.weight")).second;
  const auto& b = value(graph.find(prefix + "lora_B.weight")).second;
  const ExportedValue& exported = draft.exports.values[0];
  EXPECT_EQ(exported.parameter, graph.find("model.layers.0.self_attn.v_proj.weight"));
  const auto& w = value(exported.parameter).second;
  const auto& merged = value(exported.value).second;
  for (size_t out = 0; out < 6; ++out)
    for (size_t in = 0; in < 4; ++in) {
      const size_t at = GetParam() ? in * 6 + out : out * 4 + in;
      EXPECT_NEAR(merged[at], w[at] + 3.0 * (b[out * 2] * a[in] + b[out * 2 + 1] * a[4 + in]), 1e-12);
    }
}

INSTANTIATE_TEST_SUITE_P(Layouts, Merge, testing::Bool(),
                         [](const auto& layout) { return std::string(layout.param ? "Conv1D" : "Linear"); });

TEST_F(Lora, ATiedHeadIsMergedIntoOneOfItsOwn) {
  make_model(true);
  const auto s = strategy("lora", {{"rank", Value(int64_t{2})}, {"merge", Value(true)}, {"targets", Value("lm_head")}});
  ASSERT_EQ(rewrite(*s), "");
  ASSERT_EQ(rewrite(*s, Section::Export), "");
  EXPECT_TRUE(draft.exports.values.empty());  // the table stays as it was
  ASSERT_EQ(draft.exports.tensors.size(), 1u);
  EXPECT_EQ(draft.exports.tensors[0].name, "model/model.safetensors:lm_head.weight");
  EXPECT_EQ(graph.tensor(draft.exports.tensors[0].value).shape, (Shape{11, 4}));
  ASSERT_EQ(draft.exports.config.size(), 1u);
  EXPECT_EQ(draft.exports.config[0].key, "tie_word_embeddings");
  EXPECT_EQ(draft.exports.config[0].json, "false");
}

}  // namespace
}  // namespace galley::test
