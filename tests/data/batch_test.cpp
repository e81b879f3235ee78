#include "host/sources/batch.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "host/base/file.hpp"
#include "host/base/json.hpp"
#include "host/base/safetensors.hpp"
#include "tests/data/support.hpp"

namespace galley {
namespace {

using Numbers = std::vector<int32_t>;
using Row = std::vector<int32_t>;

class BatchTest : public testing::Test {
 protected:
  /// A file of I32 tensors (rows, length).
  DataSpec put(int64_t rows, int64_t length, const std::map<std::string, Numbers>& tensors) {
    std::vector<safetensors::Item> items;
    for (const auto& [name, numbers] : tensors) items.push_back({name, safetensors::Dtype::I32, {rows, length}});
    safetensors::Writer writer = safetensors::Writer::create(path(), items).value();
    for (const auto& item : writer.items()) EXPECT_TRUE(writer.write(item.name, std::as_bytes(std::span(tensors.at(item.name)))).ok());
    EXPECT_TRUE(writer.finish().ok());
    return spec();
  }
  std::filesystem::path path() const { return folder_ / "batch.safetensors"; }
  DataSpec spec() const { return spec_of("batch", {{"path", path().string()}}); }
  /// The error after "data.batch: <path>: ".
  std::string error_of(const DataSpec& data, const Recipe& recipe = recipe_of({}, {})) {
    const std::string error = open_error(data, recipe, 100);
    const std::string place = "data.batch: " + path().string() + ": ";
    return error.starts_with(place) ? error.substr(place.size()) : error;
  }
  static Opened open(const DataSpec& data, const Recipe& recipe = recipe_of({}, {}), const Windows& windows = {1}) {
    Result<Opened> opened = try_open(data, recipe, 100, windows);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().cause);
    return std::move(opened).value();
  }
  Folder folder_;
};

TEST_F(BatchTest, LabelsAreShifted) {
  const Opened batch = open(put(2, 4, {{"input_ids", {1, 2, 3, 4, 5, 6, 7, 8}}, {"labels", {1, 2, 3, 4, -100, -100, 7, -100}}}));
  EXPECT_EQ(batch.info.layout, (BatchLayout{2, 4}));
  EXPECT_EQ(batch.info.window_rows, 2);
  int64_t valid = 0;
  const std::vector<RowCopy> rows = batch.window(0, 1, &valid);
  EXPECT_EQ(rows[0], (RowCopy{{1, 2, 3, 4}, {2, 3, 4, -100}, {0, 1, 2, 3}, {0, 0, 0, 0}}));
  EXPECT_EQ(rows[1], (RowCopy{{5, 6, 7, 8}, {-100, 7, -100, -100}, {0, 1, 2, 3}, {0, 0, 0, 0}}));
  EXPECT_EQ(valid, 4);
  EXPECT_EQ(batch.window(17, 1), rows);
}

TEST_F(BatchTest, DocumentsDoNotSeeOrPredictEachOther) {
  const Opened batch = open(put(1, 6,
                                {{"input_ids", {1, 2, 3, 4, 5, 6}},
                                 {"labels", {1, 2, 3, 4, 5, 6}},
                                 {"document_ids", {7, 7, 7, 3, 3, 9}},
                                 {"position_ids", {0, 1, 2, 0, 1, 0}}}));
  EXPECT_EQ(batch.window(0, 1)[0], (RowCopy{{1, 2, 3, 4, 5, 6}, {2, 3, -100, 5, -100, -100}, {0, 1, 2, 0, 1, 0}, {0, 0, 0, 3, 3, 5}}));
}

TEST_F(BatchTest, PositionsRunOnWhereTheFileHasNone) {
  const Opened batch = open(put(1, 4, {{"input_ids", {1, 2, 3, 4}}, {"labels", {1, 2, 3, 4}}, {"document_ids", {0, 0, 1, 1}}}));
  EXPECT_EQ(batch.window(0, 1)[0].position_ids, (Row{0, 1, 2, 3}));
}

TEST_F(BatchTest, PaddingOnEitherSide) {
  const Opened batch = open(put(3, 5,
                                {{"input_ids", {9, 9, 3, 4, 5, 1, 2, 3, 9, 9, 9, 9, 9, 9, 9}},
                                 {"labels", {-100, -100, -100, 4, 5, 1, 2, 3, -100, -100, -100, -100, -100, -100, -100}},
                                 {"attention_mask", {0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0}}}));
  int64_t valid = 0;
  const std::vector<RowCopy> rows = batch.window(0, 1, &valid);
  EXPECT_EQ(rows[0], (RowCopy{{0, 0, 3, 4, 5}, {-100, -100, 4, 5, -100}, {0, 0, 2, 3, 4}, {0, 1, 2, 2, 2}}));
  EXPECT_EQ(rows[1], (RowCopy{{1, 2, 3, 0, 0}, {2, 3, -100, -100, -100}, {0, 1, 2, 0, 0}, {0, 0, 0, 3, 4}}));
  EXPECT_EQ(rows[2], (RowCopy{{0, 0, 0, 0, 0}, Row(5, -100), Row(5, 0), {0, 1, 2, 3, 4}}));
  EXPECT_EQ(valid, 4);
}

TEST_F(BatchTest, PaddingAndDocumentsTogether) {
  const Opened batch = open(put(1, 6,
                                {{"input_ids", {9, 1, 2, 3, 4, 9}},
                                 {"labels", {-100, -100, 2, 3, 4, -100}},
                                 {"document_ids", {0, 0, 0, 1, 1, 1}},
                                 {"attention_mask", {0, 1, 1, 1, 1, 0}}}));
  EXPECT_EQ(batch.window(0, 1)[0], (RowCopy{{0, 1, 2, 3, 4, 0}, {-100, 2, -100, 4, -100, -100}, {0, 1, 2, 3, 4, 0}, {0, 1, 1, 3, 3, 5}}));
}

TEST_F(BatchTest, RowsFillMicroBatchesAndTheRestIsPadding) {
  Numbers ids(8 * 2);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  put(8, 2, {{"input_ids", ids}, {"labels", ids}});
  const std::vector<RowCopy> whole = open(spec()).window(0, 1);
  ASSERT_EQ(whole.size(), 8u);
  EXPECT_EQ(open(spec(), recipe_of(1, {}), {8}).window(3, 8), whole);
  EXPECT_EQ(open(spec(), recipe_of(2, 2), {4}).window(0, 4), whole);
  for (const auto& [batch, micro_batches] : {std::pair<int64_t, int64_t>{3, 3}, {8, 2}, {1, 11}, {5, 2}}) {
    int64_t valid = 0;
    const std::vector<RowCopy> rows = open(spec(), recipe_of(batch, {}), {micro_batches}).window(0, micro_batches, &valid);
    EXPECT_EQ(valid, 8);
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), rows.begin()));
    for (size_t r = 8; r < rows.size(); ++r) EXPECT_EQ(rows[r], (RowCopy{{0, 0}, {-100, -100}, {0, 0}, {0, 1}}));
  }
  EXPECT_EQ(open_error(spec(), recipe_of(1, {}), 100, {4}), "data.batch: the batch has 8 rows, but a window takes 4 micro-batches of 1");
  EXPECT_EQ(open_error(spec(), recipe_of(1, {}), 100, {7}), "data.batch: the batch has 8 rows, but a window takes 7 micro-batches of 1");
}

TEST_F(BatchTest, ALongerLengthIsPadded) {
  put(1, 2, {{"input_ids", {1, 2}}, {"labels", {1, 2}}});
  EXPECT_EQ(open(spec(), recipe_of({}, 4)).window(0, 1)[0], (RowCopy{{1, 2, 0, 0}, {2, -100, -100, -100}, {0, 1, 0, 0}, {0, 0, 2, 3}}));
  EXPECT_EQ(open_error(spec(), recipe_of({}, 1), 100),
            "data.batch: the recipe's length is 1, but the rows of " + path().string() + " have 2 positions");
}

TEST_F(BatchTest, WideIntegersAreReadToo) {
  safetensors::Writer writer =
      safetensors::Writer::create(path(), {{"input_ids", safetensors::Dtype::I64, {2, 2}}, {"labels", safetensors::Dtype::I32, {2, 2}}})
          .value();
  const std::vector<int64_t> ids = {1, 2, 3, 4};
  const Numbers labels = {1, 2, 3, 4};
  ASSERT_TRUE(writer.write("input_ids", std::as_bytes(std::span(ids))).ok());
  ASSERT_TRUE(writer.write("labels", std::as_bytes(std::span(labels))).ok());
  ASSERT_TRUE(writer.finish().ok());
  const std::vector<RowCopy> rows = open(spec()).window(0, 1);
  EXPECT_EQ(rows[1].input_ids, (Row{3, 4}));
  EXPECT_EQ(rows[1].labels, (Row{4, -100}));
}

TEST_F(BatchTest, ValuesThatCannotBe) {
  const std::map<std::string, Numbers> good = {{"input_ids", {1, 2, 3, 4, 5, 6}}, {"labels", {1, 2, 3, 4, 5, 6}}};
  const auto with = [&](const std::string& name, Numbers numbers) {
    std::map<std::string, Numbers> tensors = good;
    tensors[name] = std::move(numbers);
    return error_of(put(2, 3, tensors));
  };
  EXPECT_EQ(with("input_ids", {1, 2, 3, 4, 100, 6}), "row 1: input_ids[1] is 100; the model's ids are 0 to 99");
  EXPECT_EQ(with("input_ids", {1, 2, -100, 4, 5, 6}), "row 0: input_ids[2] is -100; the model's ids are 0 to 99");
  EXPECT_EQ(with("labels", {1, 2, 100, 4, 5, 6}), "row 0: labels[2] is 100; it must be -100, or an id: the model's ids are 0 to 99");
  EXPECT_EQ(with("labels", {1, -1, 3, 4, 5, 6}), "row 0: labels[1] is -1; it must be -100, or an id: the model's ids are 0 to 99");
  EXPECT_EQ(with("position_ids", {0, 1, 3, 0, 1, 2}), "row 0: position_ids[2] is 3; positions of a row of 3 are 0 to 2");
  EXPECT_EQ(with("position_ids", {0, 1, 2, -1, 1, 2}), "row 1: position_ids[0] is -1; positions of a row of 3 are 0 to 2");
  EXPECT_EQ(with("document_ids", {0, 0, 0, 1, 2, 1}), "row 1: document_ids[2] is 1; that document ended earlier in the row");
  EXPECT_EQ(with("attention_mask", {1, 1, 2, 1, 1, 1}), "row 0: attention_mask[2] is 2; it must be 1, or 0 for padding");
  EXPECT_EQ(with("attention_mask", {1, 0, 1, 1, 1, 1}),
            "row 0: attention_mask[1] is 0; padding between tokens is not possible, only before and after them");
  EXPECT_EQ(with("attention_mask", {0, 1, 1, 1, 1, 1}),
            "row 0: labels[1] is 2; it counts for position 0, which is padding; -100 belongs there");
  EXPECT_EQ(with("attention_mask", {1, 1, 1, 1, 0, 0}),
            "row 1: labels[2] is 6; it counts for position 1, which is padding; -100 belongs there");
}

// A micro-batch without a label that counts is fine; a batch of nothing else would only let weight decay shrink the weights.
TEST_F(BatchTest, SomethingHasToCount) {
  const Numbers ids = {1, 2, 3, 4, 5, 6};
  const std::string nothing = "nothing would train: every label is -100, or belongs to the first position of a document";
  EXPECT_EQ(error_of(put(2, 3, {{"input_ids", ids}, {"labels", Numbers(6, -100)}})), nothing);
  EXPECT_EQ(error_of(put(2, 3, {{"input_ids", ids}, {"labels", {1, -100, -100, 4, -100, -100}}})), nothing);
  EXPECT_EQ(error_of(put(1, 3, {{"input_ids", {1, 2, 3}}, {"labels", {1, 2, 3}}, {"document_ids", {0, 1, 2}}})), nothing);
  EXPECT_EQ(error_of(put(1, 1, {{"input_ids", {1}}, {"labels", {1}}})), nothing);
  put(2, 3, {{"input_ids", ids}, {"labels", {-100, -100, -100, 4, -100, 6}}});
  int64_t valid = 0;
  open(spec(), recipe_of(1, {}), {3}).window(0, 3, &valid);
  EXPECT_EQ(valid, 1);
}

TEST_F(BatchTest, TensorsThatCannotBe) {
  const Numbers ids = {1, 2};
  EXPECT_EQ(error_of(put(1, 2, {{"input_ids", ids}})), "has no tensor 'labels'");
  EXPECT_EQ(error_of(put(1, 2, {{"labels", ids}})), "has no tensor 'input_ids'");
  EXPECT_EQ(error_of(put(1, 2, {{"input_ids", ids}, {"labels", ids}, {"token_type_ids", ids}})),
            "tensor 'token_type_ids' belongs to models with token types");
  EXPECT_EQ(error_of(put(1, 2, {{"input_ids", ids}, {"labels", ids}, {"position_id", ids}})),
            "tensor 'position_id' has no meaning in a batch");
  EXPECT_EQ(error_of(put(0, 2, {{"input_ids", {}}, {"labels", {}}})), "input_ids is I32 (0, 2): there is no token");

  using safetensors::Dtype;
  const auto shapes = [&](Dtype dtype, std::vector<int64_t> input_ids, std::vector<int64_t> labels) {
    safetensors::Writer writer =
        safetensors::Writer::create(path(), {{"input_ids", dtype, input_ids}, {"labels", Dtype::I32, labels}}).value();
    for (const auto& item : writer.items())
      EXPECT_TRUE(writer.write(item.name, std::vector<std::byte>(*tensor_files::tensor_bytes(item.dtype, item.shape))).ok());
    EXPECT_TRUE(writer.finish().ok());
    return error_of(spec());
  };
  EXPECT_EQ(shapes(Dtype::F32, {1, 2}, {1, 2}), "tensor 'input_ids' is F32 (1, 2); it must be I32 or I64");
  EXPECT_EQ(shapes(Dtype::I32, {2}, {2}), "tensor 'input_ids' is I32 (2); it must have two dimensions, rows and positions");
  EXPECT_EQ(shapes(Dtype::I32, {3, 32}, {3, 17}), "tensor 'labels' is I32 (3, 17), but input_ids is I32 (3, 32)");
}

TEST_F(BatchTest, FilesThatCannotBe) {
  EXPECT_EQ(error_of(spec()), "data.batch: cannot open '" + path().string() + "': No such file or directory");
  folder_.put("batch.safetensors", "not this");
  EXPECT_NE(error_of(spec()).find("not a safetensors file"), std::string::npos);
  EXPECT_EQ(error_of(spec_of("batch", {})), "'path' of data.batch is missing");
  EXPECT_EQ(error_of(spec_of("batch", {{"file", path().string()}})), "unknown option 'file' of data.batch");
  put(1, 2, {{"input_ids", {1, 2}}, {"labels", {1, 2}}});
  EXPECT_EQ(error_of(spec(), recipe_of({}, {}, 1, 5)), "data.batch: the recipe validates every 5 steps, but nothing is held out for it");
  EXPECT_EQ(error_of(spec(), recipe_of(0, {})), "data.batch: a batch of 0 rows; it needs at least 1");
}

TEST_F(BatchTest, ReferenceCasesHaveTheirValidTokens) {
  const std::filesystem::path cases = reference_cases();
  int seen = 0;
  for (const char* name : {"gpt2-packed", "llama-gqa-tied", "mistral-window", "qwen2-bias-tied", "qwen3-qknorm"}) {
    const std::filesystem::path folder = cases / "models" / name;
    const Value expect = read_json(folder / "expect.json").value();
    const DataSpec data = spec_of("batch", {{"path", (folder / "batch.safetensors").string()}});
    const Opened batch = try_open(data, recipe_of({}, {}), 251, {1}).value();
    int64_t valid = 0;
    batch.window(0, 1, &valid);
    EXPECT_EQ(valid, *expect.as<Table>()->at("valid_tokens").as<int64_t>()) << name;
    ++seen;
  }
  EXPECT_EQ(seen, 5);
}

}  // namespace
}  // namespace galley
