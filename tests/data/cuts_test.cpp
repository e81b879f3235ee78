// Long documents are encoded in parts: their tokens are those of the whole, whatever the tokenizer's kind.
#include <gtest/gtest.h>

#include <string>

#include "host/base/random.hpp"
#include "host/tokens/document_encoder.hpp"
#include "host/tokens/pieces.hpp"
#include "tests/data/support.hpp"

namespace galley {
namespace {

constexpr const char* kPieces =
    R"("unk_id": 0, "vocab": [["<unk>", 0], ["▁", -2.5], ["a", -3], ["b", -3.2], ["c", -3.1], ["d", -4], ["ab", -3.9], ["ba", -3.9],
        ["abc", -5], ["▁a", -3.3], ["▁ab", -4.1], ["▁d", -3.7], ["aa", -4], ["cd", -5], ["bcd", -7.7]])";
constexpr const char* kWords =
    R"("type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
        "vocab": {"[UNK]": 0, "a": 1, "b": 2, "c": 3, "##a": 4, "##b": 5, "##ab": 6, "ab": 7, "##c": 8, ".": 9, "aab": 10})";

struct Kind {
  const char* name;
  std::string tokenizer;
};
const Kind kKinds[] = {
    {"T5",
     std::string(R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "\n"}, "content": " "},
        {"type": "Strip", "strip_left": false, "strip_right": true}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "Unigram", )") +
         kPieces + "}}"},
    {"XLM-R", std::string(R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
        {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}]}, "model": {"type": "Unigram", )") +
                  kPieces + "}}"},
    {"unsplit", std::string(R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false},
        "model": {"type": "Unigram", )") +
                    kPieces + "}}"},
    {"BERT",
     std::string(R"({"normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
        "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"}, "model": {)") +
         kWords + "}}"},
};

class Cuts : public testing::TestWithParam<Kind> {};

TEST_P(Cuts, AreWhereTheTokensAreThoseOfTheWhole) {
  Folder folder;
  std::string text;
  const size_t most = TextPieces::kMost + (size_t{1} << 19);
  for (uint64_t i = 0; text.size() < most; ++i) {
    const galley_philox_block block = galley_philox(3, i, 0);
    const auto& random = block.word;
    for (uint32_t c = 0; c < 1 + random[0] % 7; ++c) text += "abcABd.a"[(random[1] >> (3 * c)) & 7];
    if (random[2] % 4 == 0) text += "\xC3\xA9";
    text += random[3] % 9 == 0 ? "\n" : random[3] % 40 == 1 ? "  " : " ";
  }
  DataSpec spec = text_of({folder.put("text.txt", text).string()});
  spec.options["tokenizer"] = Value(folder.put("tokenizer.json", GetParam().tokenizer).string());
  const Recipe recipe = recipe_of(1, 512);
  const TextCodec codec = TextCodec::open(spec, recipe).value();
  const DocumentEncoder encoder = DocumentEncoder::create(spec, recipe, codec).value();
  const auto work = encoder.open().value();
  std::vector<uint32_t> whole, parts;
  ASSERT_TRUE(encoder.encode_text(text, DocumentEncoder::Position::Only, *work, &whole).ok());

  Documents documents;
  documents.files.push_back({folder / "text.txt", "text", text.size()});
  TextPieces pieces(documents, "", [&](std::string_view a, std::string_view b) { return encoder.separate(a, b, *work); });
  TextPiece piece;
  int count = 0;
  while (pieces.next(&piece).value()) {
    using Position = DocumentEncoder::Position;
    const Position position = piece.begins ? Position::First : piece.ends ? Position::Last : Position::Middle;
    ASSERT_TRUE(encoder.encode_text(piece.text, position, *work, &parts).ok());
    ++count;
  }
  EXPECT_EQ(count, 2);
  EXPECT_GT(whole.size(), 500'000u);
  EXPECT_TRUE(whole == parts) << whole.size() << " tokens, " << parts.size() << " of the parts";
}

INSTANTIATE_TEST_SUITE_P(Kinds, Cuts, testing::ValuesIn(kKinds), [](const auto& kind) {
  std::string name = kind.param.name;
  std::erase(name, '-');
  return name;
});

TEST(SpecialTokens, AreThoseThatTheFolderNames) {
  Folder folder;
  const std::string tokenizer = std::string(R"({"added_tokens": [{"id": 20, "content": "<mask>", "special": true, "lstrip": true},
      {"id": 21, "content": "[SEP]", "special": true}, {"id": 22, "content": "<x>", "special": false},
      {"id": 23, "content": "<p>", "special": true}],
      "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 21], "cls": ["a", 1]}, "model": {)") +
                                kWords + "}}";
  DataSpec spec = text_of({folder.put("text.txt", "a").string()});
  spec.options["tokenizer"] = Value(folder.put("tokenizer.json", tokenizer).string());
  const auto special = [&] { return TextCodec::open(spec, recipe_of(1, 8)).value().special(); };
  // By their usual names, and what the template puts.
  EXPECT_EQ(special().mask, 20);
  EXPECT_EQ(special().sep, 21);
  EXPECT_EQ(special().pad, -1);
  EXPECT_EQ(special().unk, 0);
  EXPECT_EQ(special().all, (std::vector<TokenId>{0, 20, 21, 23}));
  EXPECT_EQ(TextCodec::open(spec, recipe_of(1, 8)).value().eos(), 21);
  // By special_tokens_map.json, and before it tokenizer_config.json.
  folder.put("special_tokens_map.json", R"({"pad_token": {"content": "<p>"}, "cls_token": "a", "mask_token": "b", "eos_token": "c"})");
  folder.put("tokenizer_config.json", R"({"mask_token": {"content": "<x>"}, "sep_token": null})");
  EXPECT_EQ(special().mask, 22);
  EXPECT_EQ(special().pad, 23);
  EXPECT_EQ(special().cls, 1);
  EXPECT_EQ(special().sep, 21);
  EXPECT_EQ(special().all, (std::vector<TokenId>{0, 1, 3, 20, 21, 22, 23}));
  EXPECT_EQ(TextCodec::open(spec, recipe_of(1, 8)).value().eos(), 3);
}

}  // namespace
}  // namespace galley
