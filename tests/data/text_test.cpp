#include "host/sources/corpus.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <string>

#include "host/base/random.hpp"
#include "host/tokens/data_options.hpp"
#include "tests/data/support.hpp"

namespace galley {
namespace {

/// Documents of many lengths. Byte i of document d is d + 1 in the even places, and 128 + i / 2 % 100 in the odd ones: two neighbours
/// say where they are from.
class TextTest : public testing::Test {
 protected:
  void make(int documents, uint64_t longest) {
    for (int d = 0; d < documents; ++d) {
      const uint64_t size = 2 + below(bits64(galley_philox(9, static_cast<uint64_t>(d), 0), 0), longest - 1);
      std::string text(size, ' ');
      for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i % 2 == 0 ? d + 1 : 128 + static_cast<int>(i / 2 % 100));
      folder_.put("corpus/" + std::to_string(1000 + d) + ".txt", text);
      texts_.push_back(text);
    }
  }
  DataSpec spec(Table options = {}) const { return text_of({(folder_ / "corpus").string()}, std::move(options)); }
  static Opened open(const DataSpec& spec, const Recipe& recipe, const Windows& windows = {1}) {
    Result<Opened> opened = try_open(spec, recipe, 256, windows);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().cause);
    return std::move(opened).value();
  }
  /// Labels that count.
  static int64_t count(const std::vector<RowCopy>& rows) {
    int64_t valid = 0;
    for (const RowCopy& row : rows) valid += std::count_if(row.labels.begin(), row.labels.end(), [](int32_t l) { return l != kNoLabel; });
    return valid;
  }

  Folder folder_;
  std::vector<std::string> texts_;
};

/// The pieces of a row as strings: inputs and the label after the last.
std::vector<std::string> pieces_of(const RowCopy& row) {
  std::vector<std::string> pieces;
  const size_t length = row.input_ids.size();
  for (size_t s = 0; s < length;) {
    if (row.labels[s] == kNoLabel) {  // padding: to the end of the row
      for (; s < length; ++s) {
        EXPECT_EQ(row.labels[s], kNoLabel);
        EXPECT_EQ(row.input_ids[s], 0);
        EXPECT_EQ(row.position_ids[s], 0);
        EXPECT_EQ(row.first_key[s], static_cast<int32_t>(s));
      }
      break;
    }
    const size_t begin = s;
    std::string text;
    do {
      EXPECT_EQ(row.first_key[s], static_cast<int32_t>(begin)) << "a position sees another piece";
      EXPECT_EQ(row.position_ids[s], static_cast<int32_t>(s - begin));
      text += static_cast<char>(row.input_ids[s]);
      ++s;
      const bool goes_on = s < length && row.first_key[s] == static_cast<int32_t>(begin);
      EXPECT_TRUE(!goes_on || row.labels[s - 1] == row.input_ids[s]) << "a label is not the next token";
    } while (s < length && row.first_key[s] == static_cast<int32_t>(begin));
    text += static_cast<char>(row.labels[s - 1]);
    pieces.push_back(text);
  }
  return pieces;
}

TEST_F(TextTest, AnEpochShowsEveryTargetOnce) {
  make(40, 150);
  const int64_t length = 32;
  const Opened text = open(spec(), recipe_of(2, length), {3});
  EXPECT_EQ(text.info.layout, (BatchLayout{2, length}));
  EXPECT_EQ(text.info.vocabulary, 256);

  // What the pieces of an epoch must be: every document cut from its start.
  std::multiset<std::string> expected;
  int64_t targets = 0;
  for (const std::string& document : texts_) {
    targets += static_cast<int64_t>(document.size()) - 1;
    for (size_t begin = 0; begin + 1 < document.size(); begin += length) expected.insert(document.substr(begin, length + 1));
  }

  // Windows have 6 rows, an epoch does not: take rows until the targets of two epochs have come by, and compare epoch by epoch.
  std::vector<std::multiset<std::string>> epochs(1);
  std::vector<std::vector<std::string>> order(1);
  int64_t seen = 0;
  for (int64_t window = 0; epochs.size() < 4; ++window) {
    ASSERT_LT(window, 1000) << "epochs do not end";
    for (const RowCopy& row : text.window(window, 3)) {
      const std::vector<std::string> pieces = pieces_of(row);
      EXPECT_FALSE(pieces.empty()) << "a row without a token";
      for (const std::string& piece : pieces) {
        epochs.back().insert(piece);
        order.back().push_back(piece);
        seen += static_cast<int64_t>(piece.size()) - 1;
      }
      EXPECT_LE(seen, targets) << "a row belongs to two epochs";
      if (seen == targets) {
        seen = 0;
        epochs.emplace_back();
        order.emplace_back();
      }
    }
  }
  for (int e = 0; e < 3; ++e) EXPECT_EQ(epochs[static_cast<size_t>(e)], expected) << "epoch " << e;
  EXPECT_NE(order[0], order[1]);
  EXPECT_NE(order[1], order[2]);
}

TEST_F(TextTest, APieceKnowsTheByteBehindIt) {
  folder_.put("corpus/a.txt", "abcdefghi");
  const Opened text = open(spec(), recipe_of(1, 4));
  std::map<std::string, RowCopy> rows;
  for (int64_t window = 0; window < 2; ++window) {
    const RowCopy row = text.window(window, 1)[0];
    rows[pieces_of(row)[0]] = row;
  }
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows.at("abcde").labels.back(), 'e');
  EXPECT_EQ(rows.at("efghi").input_ids, (std::vector<int32_t>{'e', 'f', 'g', 'h'}));
  EXPECT_EQ(rows.at("efghi").labels, (std::vector<int32_t>{'f', 'g', 'h', 'i'}));
  EXPECT_EQ(rows.at("efghi").position_ids, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST_F(TextTest, ShortDocumentsShareARowAndTheRestIsPadding) {
  folder_.put("corpus/a.txt", "abc");
  folder_.put("corpus/b.txt", "wxyz");
  const Opened text = open(spec(), recipe_of(1, 6));
  int64_t valid = 0;
  const RowCopy row = text.window(0, 1, &valid)[0];
  EXPECT_EQ(row.input_ids, (std::vector<int32_t>{'w', 'x', 'y', 'a', 'b', 0}));
  EXPECT_EQ(row.labels, (std::vector<int32_t>{'x', 'y', 'z', 'b', 'c', -100}));
  EXPECT_EQ(row.position_ids, (std::vector<int32_t>{0, 1, 2, 0, 1, 0}));
  EXPECT_EQ(row.first_key, (std::vector<int32_t>{0, 0, 0, 3, 3, 5}));
  EXPECT_EQ(valid, 5);
}

TEST_F(TextTest, AWindowDependsOnSeedAndNumberAlone) {
  make(30, 100);
  const Opened one = open(spec(), recipe_of(4, 16, 7), {2});
  const Opened again = open(spec(), recipe_of(4, 16, 7), {2});
  std::vector<std::vector<RowCopy>> windows;
  for (int64_t w = 0; w < 50; ++w) windows.push_back(one.window(w, 2));
  for (int64_t w = 49; w >= 0; w -= 7) EXPECT_EQ(again.window(w, 2), windows[static_cast<size_t>(w)]);  // resumed anywhere, in any order
  EXPECT_NE(open(spec(), recipe_of(4, 16, 8), {2}).window(0, 2), windows[0]);
  EXPECT_EQ(one.source->fingerprint(), again.source->fingerprint());
}

TEST_F(TextTest, RowsDoNotDependOnHowTheyAreDividedIntoMicroBatches) {
  make(30, 100);
  const auto rows = [&](int64_t batch, int64_t micro_batches, int64_t wanted) {
    const Opened text = open(spec(), recipe_of(batch, 16), {micro_batches});
    std::vector<RowCopy> all;
    for (int64_t w = 0; static_cast<int64_t>(all.size()) < wanted; ++w) {
      for (RowCopy& row : text.window(w, micro_batches)) all.push_back(std::move(row));
    }
    all.resize(static_cast<size_t>(wanted));
    return all;
  };
  const std::vector<RowCopy> expected = rows(8, 1, 200);
  EXPECT_EQ(rows(1, 8, 200), expected);
  EXPECT_EQ(rows(2, 4, 200), expected);
  EXPECT_EQ(rows(3, 5, 200), expected);
}

TEST_F(TextTest, HeldOutDocumentsComeOnceAndNeverInTraining) {
  make(40, 80);
  const Recipe recipe = recipe_of(3, 24, 5, 10);
  const Opened text = open(spec({{"validation", 0.1}}), recipe);
  EXPECT_TRUE(text.info.validation);
  const auto document_of = [](const std::string& piece) { return static_cast<uint8_t>(piece[0]) < 128 ? piece[0] : piece[1]; };

  std::multiset<std::string> held;
  std::set<char> held_documents;
  ASSERT_GT(text.source->validation_batches(), 0);
  for (int64_t b = 0; b < text.source->validation_batches(); ++b) {
    OwnedWindow window(text.info.layout, 1), twice(text.info.layout, 1);
    ASSERT_TRUE(text.source->fill_validation(b, window.buffer).ok());
    ASSERT_TRUE(text.source->fill_validation(b, twice.buffer).ok());
    EXPECT_EQ(copy_rows(window.buffer), copy_rows(twice.buffer));
    EXPECT_GT(window.buffer.valid_tokens, 0);
    EXPECT_EQ(window.buffer.valid_tokens, count(copy_rows(window.buffer)));
    for (const RowCopy& row : copy_rows(window.buffer)) {
      for (const std::string& piece : pieces_of(row)) {
        held.insert(piece);
        held_documents.insert(document_of(piece));
      }
    }
  }
  EXPECT_EQ(held_documents.size(), 4u);  // a tenth of 40
  std::multiset<std::string> expected;
  for (const char d : held_documents) {
    const std::string& document = texts_[static_cast<size_t>(d) - 1];
    for (size_t begin = 0; begin + 1 < document.size(); begin += 24) expected.insert(document.substr(begin, 25));
  }
  EXPECT_EQ(held, expected);

  std::set<char> trained;
  for (int64_t w = 0; w < 100; ++w) {
    for (const RowCopy& row : text.window(w, 1)) {
      for (const std::string& piece : pieces_of(row)) trained.insert(document_of(piece));
    }
  }
  EXPECT_EQ(trained.size(), 36u);
  for (const char d : held_documents) EXPECT_FALSE(trained.contains(d));
}

TEST_F(TextTest, WhatIsHeldOutDependsOnSeedAndNamesNotOnThePlace) {
  make(40, 80);
  const auto held = [&](const std::string& directory, uint64_t split, uint64_t seed = 1) {
    Recipe recipe = recipe_of(1, 100, seed, 1);
    recipe.split = split;
    const Opened text = open(text_of({(folder_ / directory).string()}, {{"validation", 0.25}}), recipe);
    std::multiset<std::string> pieces;
    for (int64_t b = 0; b < text.source->validation_batches(); ++b) {
      OwnedWindow window(text.info.layout, 1);
      EXPECT_TRUE(text.source->fill_validation(b, window.buffer).ok());
      for (const std::string& piece : pieces_of(copy_row(window.buffer, 0))) pieces.insert(piece);
    }
    return pieces;
  };
  const std::multiset<std::string> before = held("corpus", 1);
  EXPECT_EQ(before.size(), 10u);
  std::filesystem::rename(folder_ / "corpus", folder_ / "moved");
  EXPECT_EQ(held("moved", 1), before);
  EXPECT_NE(held("moved", 2), before);
  EXPECT_EQ(held("moved", 1, 2), before);
}

TEST_F(TextTest, AtLeastOneDocumentIsHeldOutAndOneStays) {
  folder_.put("corpus/a.txt", "aaaaaaaa");
  folder_.put("corpus/b.txt", "bbbbbbbb");
  for (const double validation : {0.001, 0.05, 0.5, 0.999}) {
    const Opened text = open(spec({{"validation", validation}}), recipe_of(1, 8));
    EXPECT_EQ(text.source->validation_batches(), 1);
    EXPECT_EQ(text.window(0, 1), text.window(1, 1));  // the one row there is
  }
  EXPECT_EQ(open(spec(), recipe_of(1, 8)).source->validation_batches(), 0);
  EXPECT_EQ(open(spec(), recipe_of(1, 8, 1, 50)).source->validation_batches(), 1);  // 0.05 where the recipe validates
}

TEST_F(TextTest, ALoneDocumentIsCut) {
  folder_.put("corpus/a.txt", "0123456789abcdefghij");
  const Opened text = open(spec({{"validation", 0.25}}), recipe_of(1, 32, 1, 1));
  EXPECT_EQ(pieces_of(text.window(0, 1)[0]), std::vector<std::string>{"0123456789abcde"});
  OwnedWindow window(text.info.layout, 1);
  ASSERT_EQ(text.source->validation_batches(), 1);
  ASSERT_TRUE(text.source->fill_validation(0, window.buffer).ok());
  EXPECT_EQ(pieces_of(copy_row(window.buffer, 0)), std::vector<std::string>{"fghij"});
  folder_.put("corpus/a.txt", "012");
  EXPECT_EQ(open_error(spec({{"validation", 0.25}}), recipe_of(1, 32, 1, 1)),
            "data.text: the recipe validates every 1 steps, but nothing is held out for it");
  EXPECT_EQ(open_error(spec({{"validation", 0.25}}), recipe_of(1, 32)), "no error");
}

TEST_F(TextTest, ABinaryFileThatLooksLikeATextAtFirstIsLeftOut) {
  make(2, 60);
  const std::string late = std::string(9000, 'x') + '\0';
  folder_.put("corpus/late.bin", late);
  const Opened text = open(spec(), recipe_of(1, 64));
  for (int64_t w = 0; w < 4; ++w) {
    for (const std::string& piece : pieces_of(text.window(w, 1)[0])) EXPECT_EQ(piece.find('x'), std::string::npos);
  }
  EXPECT_EQ(open_error(text_of({(folder_ / "corpus/late.bin").string()}), recipe_of(1, 64)),
            "data.text: '" + (folder_ / "corpus/late.bin").string() + "' is not a text: byte 9000 is a NUL");
}

TEST_F(TextTest, PreparationThatFailsLeavesNothing) {
  make(3, 60);
  use_own_cache();
  const auto files = [] {
    std::error_code error;
    return std::distance(std::filesystem::directory_iterator(std::getenv("GALLEY_CACHE"), error), {});
  };
  const auto before = files();
  PrepareOptions options = {.threads = 2, .progress = [&](uint64_t, uint64_t) -> Status {
                              folder_.put("corpus/1001.txt", "something else is written while it is read");
                              std::filesystem::last_write_time(folder_ / "corpus/1001.txt",
                                                               std::filesystem::file_time_type::clock::now() + std::chrono::seconds(5));
                              return ok();
                            }};
  const DataInfo info = describe_data(spec(), recipe_of(1, 8)).value();
  const Error changed = open_data(info, spec(), recipe_of(1, 8), 256, {1}, options).error();
  EXPECT_EQ(changed.cause, "recipe.lua:5: data.text: '" + (folder_ / "corpus/1001.txt").string() + "' changed while it was being read");
  options.progress = [](uint64_t, uint64_t) -> Status { return Error{Exit::Interrupted, "enough", ""}; };
  EXPECT_EQ(open_data(info, spec(), recipe_of(1, 8), 256, {1}, options).error().exit, Exit::Interrupted);
  EXPECT_EQ(files(), before);
}

TEST_F(TextTest, TheCacheMayMoveWhileDataIsPrepared) {
  make(3, 60);
  use_own_cache();
  const std::string cache = std::getenv("GALLEY_CACHE"), elsewhere = (folder_ / "elsewhere").string();
  const PrepareOptions options = {.threads = 2, .progress = [&](uint64_t, uint64_t total) -> Status {
                                    if (total > 0) setenv("GALLEY_CACHE", elsewhere.c_str(), 1);
                                    return ok();
                                  }};
  const DataInfo info = describe_data(spec(), recipe_of(1, 8)).value();
  const auto source = open_data(info, spec(), recipe_of(1, 8), 256, {1}, options);
  setenv("GALLEY_CACHE", cache.c_str(), 1);
  ASSERT_TRUE(source.ok()) << source.error().cause;
  EXPECT_EQ((*source)->fingerprint(), open(spec(), recipe_of(1, 8)).source->fingerprint());
}

TEST_F(TextTest, TheFingerprintIsOfNamesAndBytes) {
  make(3, 60);
  const uint64_t before = open(spec(), recipe_of(1, 8, 1)).source->fingerprint();
  EXPECT_EQ(open(spec(), recipe_of(2, 16, 2)).source->fingerprint(), before);
  texts_[1][0] = '!';
  folder_.put("corpus/1001.txt", texts_[1]);
  EXPECT_NE(open(spec(), recipe_of(1, 8, 1)).source->fingerprint(), before);
}

TEST_F(TextTest, Errors) {
  make(3, 60);
  const Recipe recipe = recipe_of(1, 8);
  const std::string corpus = (folder_ / "corpus").string();
  EXPECT_EQ(open_error(spec_of("text", {{"tokenizer", std::string("bytes")}}), recipe), "'files' of data.text is missing");
  EXPECT_EQ(open_error(spec_of("text", {{"files", List{}}}), recipe), "'files' of data.text must be a string or a list of strings, not {}");
  EXPECT_EQ(open_error(spec_of("text", {{"files", int64_t{3}}}), recipe),
            "'files' of data.text must be a string or a list of strings, not 3");
  EXPECT_EQ(open_error(spec_of("text", {{"files", List{Value(true)}}}), recipe),
            "'files' of data.text must be a string or a list of strings, not { true }");
  EXPECT_EQ(open_error(spec_of("text", {{"files", corpus}, {"tokenizer", std::string("bytes")}}), recipe),
            "no error");  // one string will do
  EXPECT_EQ(open_error(spec_of("text", {{"files", corpus}}), recipe),
            "data.text: tokenizer = \"model\", the default, but the model has no folder that one could lie in");
  EXPECT_EQ(open_error(spec_of("text", {{"files", corpus}, {"tokenizer", std::string("byte")}}), recipe), "data.text: there is no byte");
  EXPECT_EQ(open_error(spec({{"validation", 1.0}}), recipe), "'validation' of data.text must be a number in [0, 1), not 1");
  EXPECT_EQ(open_error(spec({{"validation", true}}), recipe), "'validation' of data.text must be a number in [0, 1), not true");
  EXPECT_EQ(open_error(spec({{"validation", int64_t{0}}}), recipe_of(1, 8, 1, 10)),
            "data.text: the recipe validates every 10 steps, but nothing is held out for it");
  EXPECT_EQ(open_error(spec(), recipe_of({}, 8)), "data.text: the recipe gives no batch");
  EXPECT_EQ(open_error(spec(), recipe_of(1, {})), "data.text: the recipe gives no length");
  EXPECT_EQ(open_error(spec(), recipe_of(0, 8)), "data.text: a batch of 0 rows; it needs at least 1");
  EXPECT_EQ(open_error(spec(), recipe_of(1 << 20, 1 << 20)),
            "data.text: a batch of 1048576 rows of 1048576 positions is more than 2^31 tokens");
  EXPECT_EQ(open_error(spec(), recipe, 211), "data.text: its tokens have ids up to 255, but the model's vocabulary has 211");
  const Result<Opened> misspelt = try_open(spec({{"tokeniser", std::string("bytes")}}), recipe, 256, {1});
  EXPECT_EQ(misspelt.error().cause, "recipe.lua:5: unknown option 'tokeniser' of data.text; did you mean 'tokenizer'?");
  EXPECT_EQ(misspelt.error().hint,
            "options of data.text: files, tokenizer, validation, packing, overlong, group_by_length, eos, mask, special, separator");

  std::filesystem::remove_all(corpus);
  folder_.put("corpus/a", "");
  folder_.put("corpus/b", "b");
  folder_.put("corpus/c", std::string(5, '\0'));
  EXPECT_EQ(open_error(spec(), recipe), "data.text: there is no text: no file of two bytes or more (2 are smaller, 1 are binary)");
}

TEST(DataOptions, EachKindSaysHowItIsWritten) {
  ASSERT_FALSE(declared_data().empty());
  for (const Declared& kind : declared_data()) EXPECT_EQ(kind.written.rfind("data = data." + kind.name, 0), 0u) << kind.name;
}

}  // namespace
}  // namespace galley
