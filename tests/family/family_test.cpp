#include "host/family/family.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "host/base/json.hpp"
#include "tests/base/folder.hpp"

namespace galley {
namespace {

/// A family by itself, with a library by itself.
class Family : public testing::Test {
 protected:
  Family() {
    root_.put("lib/config.lua", "return { harmless = { 'model_type', 'architectures', 'shared' } }");
    model_.config = {{"model_type", Value(std::string("little"))}};
    model_.model_type = "little";
    model_.architecture = "LittleForCausalLM";
    model_.origin = "config.json";
    model_.folder = root_ / "model";
  }

  /// Runs `build`, the body of the family's function; "" or the error's cause.
  std::string build(const std::string& body) {
    root_.put("families/little.lua",
              "return { model_types = { 'little' }, architecture = { little = 'LittleForCausalLM' }, harmless = { 'own' }, "
              "build = function(config, g)\n" +
                  body + "\nend }");
    draft_ = std::make_unique<Draft>([](std::string_view) { return nullptr; }, [] { return std::vector<std::string>(); }, Extents{1, 8});
    const Status status = build_family(model_, {root_ / "families", root_ / "lib"}, documents_, *draft_);
    return status ? "" : status.error().cause;
  }

  const Folder root_;
  ModelConfig model_;
  RowDocuments documents_ = RowDocuments::Several;
  std::unique_ptr<Draft> draft_;
};

TEST_F(Family, SavesWhatItTakes) {
  model_.config["given"] = Value(int64_t{7});
  model_.config["own"] = Value(true);
  model_.config["architectures"] = Value(List{Value(std::string("LittleModel"))});
  EXPECT_EQ(build("config.width = config.given + 1; config.eps = 1e-5; config.types = { 'a', 'b' }; config.given = 9\n"
                  "if config.width ~= 8 or config.given ~= 9 then error('it reads what it wrote') end"),
            "");
  EXPECT_EQ(
      to_json(Value(model_.config)),
      R"({"architectures":["LittleForCausalLM"],"eps":1e-05,"given":9,"model_type":"little","own":true,"types":["a","b"],"width":8})");
}

TEST_F(Family, TellsNullFromAbsence) {
  model_.config["empty"] = Value();
  EXPECT_EQ(build("error(tostring(config:has('empty')) .. tostring(config:has('gone')) .. tostring(config.empty), 0)"),
            "config.json: truefalsenil");
}

TEST_F(Family, ReadsEveryKeyThatIsNotHarmless) {
  model_.config["own"] = model_.config["shared"] = model_.config["read"] = Value(int64_t{1});
  EXPECT_EQ(build("return config.read"), "") << "its own list, and the one of the library that all families share";
  model_.config["other"] = Value(int64_t{1});
  EXPECT_EQ(build("return config.read"),
            "config.json: key 'other' = 1 is not supported by this family, and may change what the model computes");
}

TEST_F(Family, SaysWhatOptimizersAndTheProofNeedToKnow) {
  EXPECT_EQ(build("g:parameter { name = 'plain', shape = { 3 } }\n"
                  "g:parameter { name = 'flags', shape = { 3 }, decay = false, embedding = true, zero_gradient = true }"),
            "");
  EXPECT_EQ(draft_->graph.tensor(draft_->graph.find("plain")).flags, 0u);
  EXPECT_EQ(draft_->graph.tensor(draft_->graph.find("flags")).flags,
            GALLEY_TENSOR_NO_DECAY | GALLEY_TENSOR_EMBEDDING | GALLEY_TENSOR_ZERO_GRADIENT);
}

TEST_F(Family, HasNoGlobalsToSpoil) {
  EXPECT_EQ(build("galley_family_ = 7"), "");
  model_.config["shared"] = Value(int64_t{1});
  EXPECT_EQ(build("galley_family_ = { harmless = {}, model_types = {} }"), "");
}

TEST_F(Family, HasNoFirstKeyWhereARowIsOneDocument) {
  const std::string ask = "g:input('input_ids'); if g:input('first_key') then error('there', 0) end";
  EXPECT_EQ(build(ask), "config.json: there");
  documents_ = RowDocuments::One;
  EXPECT_EQ(build(ask), "");
  EXPECT_TRUE(draft_->graph.find("input_ids"));
  EXPECT_FALSE(draft_->graph.find("first_key"));
}

TEST_F(Family, NamesATensorInItsFile) {
  EXPECT_EQ(build("g:parameter { name = 'a.b|c', shape = { 2 }, aliases = { 'b|c', nil }, hint = 'look again' }"), "");
  const GraphTensor& t = draft_->graph.tensor(draft_->graph.find("a.b|c"));
  EXPECT_EQ(t.source.path, model_.folder.string());
  EXPECT_EQ(t.source.name, "a.b|c");
  EXPECT_EQ(t.source.aliases, std::vector<std::string>{"b|c"});
  EXPECT_EQ(t.source.hint, "look again");
}

TEST_F(Family, DescribesTheModel) {
  std::vector<Document> documents = {{"adapter/adapter_config.json", "{}"}};
  model_.config["dtype"] = Value(std::string("bfloat16"));
  describe_model(model_, "float32", {{"quantization_config", "{\"bits\": 4}"}}, documents);
  ASSERT_EQ(documents.size(), 2u);
  EXPECT_EQ(documents[0].text, "{}");
  EXPECT_EQ(documents[1].file, "model/config.json");
  EXPECT_EQ(documents[1].text,
            "{\n  \"dtype\": \"float32\",\n  \"model_type\": \"little\",\n  \"quantization_config\": {\n    \"bits\": 4\n  }\n}\n");
}

}  // namespace
}  // namespace galley
