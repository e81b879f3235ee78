// What is known of rows before anything is read: whether each is one document, so that first_key says nothing.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "host/base/safetensors.hpp"
#include "tests/data/support.hpp"

namespace galley {
namespace {

class OneDocumentTest : public testing::Test {
 protected:
  OneDocumentTest() {
    for (const char* name : {"a.txt", "b.txt"})
      folder_.put(std::string("text/") + name, std::string(name) + ": a text of its own, and long enough");
    folder_.put("one.txt", "the only text there is, which is longer than a few rows of eight positions");
    folder_.put("tokens.bin", std::string(200, 'a'));
    folder_.put("lines.jsonl", "{\"text\": \"the first line\"}\n{\"text\": \"another\"}\n{\"text\": \"x\"}\n");
  }
  DataSpec text(const char* files, Table options = {}) const { return text_of({(folder_ / files).string()}, std::move(options)); }
  DataSpec lines(Table options) const {
    options.emplace("files", List{Value((folder_ / "lines.jsonl").string())});
    options.emplace("tokenizer", std::string("bytes"));
    return spec_of("jsonl", std::move(options));
  }
  DataSpec tokens(Table options = {}) const {
    options.emplace("files", List{Value((folder_ / "tokens.bin").string())});
    return spec_of("tokens", std::move(options));
  }
  DataSpec batch(const std::vector<std::string>& tensors) const {
    const std::string path = (folder_ / "batch.safetensors").string();
    std::vector<safetensors::Item> items;
    for (const std::string& name : tensors) items.push_back({name, safetensors::Dtype::I32, {1, 8}});
    safetensors::Writer writer = safetensors::Writer::create(path, items).value();
    const std::vector<int32_t> ones(8, 1);
    for (const auto& item : writer.items()) EXPECT_TRUE(writer.write(item.name, std::as_bytes(std::span(ones))).ok());
    EXPECT_TRUE(writer.finish().ok());
    return spec_of("batch", {{"path", path}});
  }
  /// What is said of the data, which has to be true of what it gives.
  static bool known(const DataSpec& spec) {
    const Recipe recipe = spec.kind == "batch" ? recipe_of({}, {}) : recipe_of(2, 8);
    Result<Opened> opened = try_open(spec, recipe, 65536, {2});
    EXPECT_TRUE(opened.ok()) << opened.error().cause;
    if (!opened.ok() || !opened->info.one_document) return false;
    for (int64_t w = 0; w < 8; ++w)
      for (const RowCopy& row : opened->window(w, 2))
        for (size_t s = 0; s < row.labels.size(); ++s) {
          if (row.labels[s] == kNoLabel) continue;
          EXPECT_EQ(row.first_key[s], 0);
          EXPECT_TRUE(s == 0 || row.first_key[s - 1] == 0) << "what counts sees nothing but its document";
        }
    return true;
  }

  Folder folder_;
};

TEST_F(OneDocumentTest, FollowsFromPacking) {
  const Table none = {{"packing", std::string("none")}};
  EXPECT_FALSE(known(text("text")));
  EXPECT_FALSE(known(text("text", {{"packing", std::string("sequential")}})));
  EXPECT_TRUE(known(text("text", none)));
  EXPECT_FALSE(known(lines({})));
  EXPECT_TRUE(known(lines(none)));
}

TEST_F(OneDocumentTest, FollowsFromOneFileByItsName) {
  EXPECT_TRUE(known(text("one.txt")));
  EXPECT_TRUE(known(text("one.txt", {{"packing", std::string("sequential")}, {"validation", 0.3}})));
  EXPECT_TRUE(known(text("one.txt", {{"validation", (folder_ / "text/a.txt").string()}})));
  EXPECT_FALSE(known(text("one.txt", {{"validation", (folder_ / "text").string()}})));
  EXPECT_FALSE(known(text("one.txt", {{"separator", std::string("x")}})));
  EXPECT_FALSE(known(text("*.txt"))) << "a pattern may find more tomorrow";
  EXPECT_TRUE(known(tokens()));
  EXPECT_FALSE(known(tokens({{"separator", int64_t{3}}})));
}

TEST_F(OneDocumentTest, HoldsOfAMixIfOfAllOfIt) {
  DataSpec mix = spec_of("mix", {});
  mix.parts = {text("one.txt"), lines({{"packing", std::string("none")}})};
  EXPECT_TRUE(known(mix));
  mix.parts[1] = lines({});
  EXPECT_FALSE(known(mix));
}

TEST_F(OneDocumentTest, FollowsFromTheTensorsOfABatch) {
  EXPECT_TRUE(known(batch({"input_ids", "labels"})));
  EXPECT_FALSE(known(batch({"input_ids", "labels", "document_ids"})));
  EXPECT_FALSE(known(batch({"input_ids", "labels", "attention_mask"})));
  EXPECT_TRUE(known(spec_of("random", {})));
}

TEST_F(OneDocumentTest, IsCheckedWhenTheDataIsOpened) {
  use_own_cache();
  const Recipe recipe = recipe_of(2, 32);
  const DataSpec plain = text("text", {{"packing", std::string("none")}}), packed = lines({});
  const DataInfo info = describe_data(plain, recipe).value();
  EXPECT_EQ(open_data(info, packed, recipe, 256, {1}, {.threads = 2}).error().cause,
            "recipe.lua:5: data.jsonl: its files have changed since the run was planned: there are rows of several documents now");
  const DataInfo alone = describe_data(batch({"input_ids", "labels"}), recipe_of({}, {})).value();
  EXPECT_EQ(open_data(alone, batch({"input_ids", "labels", "document_ids"}), recipe_of({}, {}), 256, {1}, {.threads = 2}).error().cause,
            "recipe.lua:5: data.batch: " + (folder_ / "batch.safetensors").string() +
                " has changed since the run was planned: it has documents or padding now");
}

}  // namespace
}  // namespace galley
