#include "host/tokens/tokenizer/tokenizer.hpp"

#include <gtest/gtest.h>

#include "host/tokens/tokenizer/graphemes.hpp"
#include "host/tokens/tokenizer/trie.hpp"

namespace galley {
namespace {

/// The tokens of segments, "-" after those that count. Text in brackets counts.
std::string counted(const std::string& json, const std::string& marked) {
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json, "tokenizer.json");
  if (!tokenizer) return tokenizer.error().cause;
  std::vector<Tokenizer::Segment> segments = {{}};
  for (const char c : marked) {
    if (c == '[' || c == ']') segments.push_back({"", false, c == '['});
    else segments.back().text += c;
  }
  Tokenizer::Work work(*tokenizer);
  std::vector<TokenId> ids;
  std::vector<bool> counts;
  const Status status = tokenizer->encode(segments, work, &ids, &counts);
  if (!status) return status.error().cause;
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) out += (i ? " " : "") + tokenizer->name(ids[i]) + (counts[i] ? "-" : "");
  return out;
}

// A token counts where a part of it lies in what counts, whatever is put before words, written for spaces or left out.
TEST(Counts, FollowTheWords) {
  const std::string unigram =
      R"("model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["_", -1], ["a", -1], ["b", -1], ["_a", -1], ["ab", -1]]})";
  const std::string always = R"({"pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "always"}, )" + unigram + "}";
  EXPECT_EQ(counted(always, "a[ b]a"), "_a _- b- a");
  EXPECT_EQ(counted(always, "a [b]a"), "_a _ b- a");
  EXPECT_EQ(counted(always, "[a] b"), "_a- _ b");
  EXPECT_EQ(counted(always, "ax[y]b  [a]b"), "_a ?- b _ _ ab-");
  EXPECT_EQ(counted(always, "\xC3\xA9 [\xC3\xA9]b\xC3\xA9"), "_ ? _ ?- b ?");
  const std::string both = R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Metaspace",
      "replacement": "_", "prepend_scheme": "always"}]}, )" +
                           unigram + "}";
  EXPECT_EQ(counted(both, "a\n\n[a] b"), "_a _a- _ b");
  EXPECT_EQ(counted(both, "ab [  b] a"), "_ ab _- b- _a");
  const std::string words = R"({"normalizer": {"type": "BertNormalizer", "lowercase": true}, "pre_tokenizer": {"type": "BertPreTokenizer"},
      "model": {"type": "WordPiece", "unk_token": "?", "vocab": {"?": 0, "a": 1, "##b": 2, "##bb": 3, ",": 4, "e": 5}}})";
  EXPECT_EQ(counted(words, "a[b] a,[a]"), "a ##b- a , a-");
  EXPECT_EQ(counted(words, "abbb [x]yz \xC3\x89[,A]"), "a ##bb ##b ?- e ,- a-");
}

/// How a post-processor joins two texts: "A" and "B", tokens by id, "|" before what is of the second type.
std::string joined(const std::string& post) {
  const std::string json =
      R"({"model":{"type":"BPE","vocab":{"a":0},"merges":[]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},)"
      R"("post_processor":)" +
      post + "}";
  const Result<Tokenizer> tokenizer = Tokenizer::parse(json, "tokenizer.json");
  if (!tokenizer) return tokenizer.error().cause;
  std::string out;
  int8_t type = 0;
  for (const Tokenizer::PairPiece& piece : tokenizer->pair()) {
    if (piece.type != type) out += "|";
    type = piece.type;
    out += piece.text < 0 ? std::to_string(piece.id) : piece.text ? "B" : "A";
  }
  return out;
}

TEST(Pairs, AreJoinedAsTheFileSays) {
  const auto pair = [](const std::string& pieces) {
    return R"({"type":"TemplateProcessing","single":[{"Sequence":{"id":"A","type_id":0}}],"pair":[)" + pieces +
           R"(],"special_tokens":{"x":{"id":"x","ids":[7],"tokens":["x"]}}})";
  };
  const auto text = [](const char* id, int type) {
    return R"({"Sequence":{"id":")" + std::string(id) + R"(","type_id":)" + std::to_string(type) + "}}";
  };
  const auto token = [](int type) { return R"({"SpecialToken":{"id":"x","type_id":)" + std::to_string(type) + "}}"; };
  EXPECT_EQ(joined("null"), "A|B");
  EXPECT_EQ(joined(R"({"type":"ByteLevel"})"), "A|B");
  EXPECT_EQ(joined(R"({"type":"BertProcessing","sep":["s",3],"cls":["c",2]})"), "2A3|B3");
  EXPECT_EQ(joined(R"({"type":"RobertaProcessing","sep":["s",3],"cls":["c",2]})"), "2A33B3");
  EXPECT_EQ(joined(pair(token(0) + "," + text("A", 0) + "," + text("B", 1) + "," + token(1))), "7A|B7");
  EXPECT_EQ(joined(pair(text("B", 0) + "," + token(0) + "," + text("A", 0))), "B7A");
  // Not supported: no way of joining.
  EXPECT_EQ(joined(pair(text("A", 1) + "," + text("B", 0))), "");
  EXPECT_EQ(joined(pair(text("A", 0) + "," + text("B", 2))), "");
  EXPECT_EQ(joined(pair(text("A", 0) + "," + text("A", 1))), "");
  EXPECT_EQ(joined(R"({"type":"Sequence","processors":[)" + pair(text("A", 0) + "," + text("B", 1)) + "," +
                   pair(text("A", 0) + "," + text("B", 1)) + "]}"),
            "");
  EXPECT_EQ(joined(R"({"type":"Sequence","processors":[{"type":"ByteLevel"},)" + pair(text("A", 0) + "," + text("B", 1)) + "]}"), "A|B");
}

TEST(Trie, FindsAllThatATextBeginsWith) {
  std::vector<std::string> words;
  for (int i = 0; i < 256; ++i) words.push_back({'k', static_cast<char>(i)});
  words.insert(words.end(), {"", "k", "other", "k"});
  std::vector<std::pair<std::string_view, int32_t>> keys;
  for (size_t i = 0; i < words.size(); ++i) keys.emplace_back(words[i], static_cast<int32_t>(i));
  const Trie trie(keys);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(trie.find(words[i]), static_cast<int32_t>(i));
  EXPECT_EQ(trie.find("k"), 259);
  EXPECT_EQ(trie.find("other"), 258);
  for (const char* none : {"", "o", "othe", "others", "x"}) EXPECT_EQ(trie.find(none), -1) << none;
  EXPECT_EQ(Trie().find("k"), -1);
}

TEST(Graphemes, EndWhereAReaderSeesTheNext) {
  const std::pair<const char*, size_t> cases[] = {{"ab", 1},
                                                  {"\r\n", 2},
                                                  {"\n\n", 1},
                                                  {"e\xCC\x81x", 3},
                                                  {"\xC2\xA0\xCC\x81 ", 4},
                                                  {"\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x92\xBB!", 11},
                                                  {"\xE0\xA4\x95\xE0\xA5\x8D\xE0\xA4\xB7x", 9},  // a conjunct (GB9c)
                                                  {"A\xE0\xA2\x97x", 4}};                        // a mark of Unicode 16
  for (const auto& [text, bytes] : cases) EXPECT_EQ(first_grapheme(text), bytes) << text;
}

}  // namespace
}  // namespace galley
