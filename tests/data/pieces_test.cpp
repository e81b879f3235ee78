#include "host/tokens/pieces.hpp"

#include <gtest/gtest.h>

#include <string>

#include "host/sources/corpus.hpp"
#include "tests/data/support.hpp"

namespace galley {
namespace {

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

class Pieces : public testing::Test {
 protected:
  /// The sizes of the parts of a text; all of them together are the text.
  std::vector<size_t> cut(const std::string& text, TextPieces::Separate separate = {}) {
    Documents documents;
    documents.files.push_back({folder_.put("text", text), "text", text.size()});
    TextPieces pieces(documents, "", std::move(separate));
    std::vector<size_t> sizes;
    std::string whole;
    TextPiece piece;
    while (pieces.next(&piece).value()) {
      EXPECT_EQ(piece.begins, sizes.empty());
      EXPECT_EQ(piece.ends, whole.size() + piece.text.size() == text.size());
      sizes.push_back(piece.text.size());
      whole += piece.text;
    }
    EXPECT_TRUE(whole == text);
    return sizes;
  }

  Folder folder_;
};

constexpr size_t kLarge = TextPieces::kMost + (size_t{3} << 19);

TEST_F(Pieces, AreCutBehindLines) {
  EXPECT_EQ(cut(std::string(1000, 'x')), std::vector<size_t>{1000});
  const std::vector<size_t> sizes = cut(repeated("one two\n", kLarge / 8));
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[0] % 8, 0u);
}

// No line ends, and characters of three bytes.
TEST_F(Pieces, AreCutBehindCharacters) {
  const std::vector<size_t> sizes = cut(repeated("漢", kLarge / 3));
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[0] % 3, 0u);
}

TEST_F(Pieces, AreCutWhereTheTokenizerAgrees) {
  const auto before_c = [](std::string_view before, std::string_view behind) -> Result<bool> {
    return behind[0] == 'c' && before.back() == 'b';
  };
  const std::string text = repeated("a\nbc", kLarge / 4);
  const std::vector<size_t> sizes = cut(text, before_c);
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_EQ(sizes[0] % 4, 3u);
  // Nowhere: after a line, then.
  const auto never = [](std::string_view, std::string_view) -> Result<bool> { return false; };
  EXPECT_EQ(cut(text, never)[0] % 4, 2u);
  EXPECT_EQ(cut(repeated("漢", kLarge / 3), never)[0] % 3, 0u);
}

// Without words to cut a text into, as in Llama 2's tokenizer, tokens may reach across the ends of lines.
TEST_F(Pieces, TokensAcrossLinesAreKept) {
  const std::string tokenizer =
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "\n": 1, "b": 2, "a\n": 3, "a\nb": 4}, "merges": [["a", "\n"], ["a\n", "b"]]}})";
  DataSpec spec = text_of({folder_.put("text.txt", repeated("a\nb", kLarge / 3)).string()});
  spec.options["tokenizer"] = Value(folder_.put("tokenizer.json", tokenizer).string());
  const Result<Opened> opened = try_open(spec, recipe_of(1, 512), 256, {1});
  ASSERT_TRUE(opened.ok()) << opened.error().cause;
  const std::vector<DataReport> reports = opened->source->reports();
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].store.tokens, kLarge / 3);
}

}  // namespace
}  // namespace galley
