#include "host/tokens/tokenizer/regex.hpp"

#include <gtest/gtest.h>

#include "host/tokens/tokenizer/oniguruma.hpp"
#include "host/tokens/tokenizer/pre_tokenizer.hpp"

namespace galley {
namespace {

/// Every match in brackets, as they follow each other; "error" after them where matching gives up; what is wrong with the pattern.
std::string all(const std::string& pattern, const std::string& text) {
  const Result<Regex> regex = Regex::compile(pattern);
  if (!regex) return regex.error().cause;
  Regex::Matches matches(*regex);
  std::string out;
  Regex::Span span;
  for (size_t from = 0; from <= text.size(); from = std::max(span.end, from + 1)) {
    const Result<bool> found = regex->find(text, from, matches, &span);
    if (!found) return out + found.error().cause;
    if (!*found) break;
    out += "[" + text.substr(span.begin, span.end - span.begin) + "]";
  }
  return out;
}

std::string repeated(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

/// The words that a Split makes of a text, with '|' between them.
std::string cut(const std::string& pattern, const std::string& text) {
  const Value spec(Table{{"type", Value(std::string("Split"))},
                         {"pattern", Value(Table{{"Regex", Value(pattern)}})},
                         {"behavior", Value(std::string("Isolated"))}});
  const Result<PreTokenizer> steps = PreTokenizer::read(&spec, "pre_tokenizer");
  if (!steps) return steps.error().cause;
  PreTokenizer::Work work(*steps);
  std::string out;
  const Status status = steps->cut(text, PreTokenizer::Start::Text, work,
                                   [&](std::string_view word) { out += (out.empty() ? "" : "|") + std::string(word); });
  return status ? out : status.error().cause;
}

TEST(Regex, Finds) {
  EXPECT_EQ(all("a+", "baac"), "[aa]");
  EXPECT_EQ(all("x", "baac"), "");
  EXPECT_EQ(all(R"( ?\p{L}+|\s+(?!\S)|\s+)", "one  two   "), "[one][ ][ two][   ]");
}

// BLOOM's words have one.
TEST(Regex, AClassInAClassAddsToIt) {
  EXPECT_EQ(all(R"( ?[^(\s|[.,!])]+)", "ab (c|d), e[f]!"), "[ab][c][d][ e[f]]");
  EXPECT_EQ(all(R"([x[a-c]y[\]]]+)", "-xay]b-d"), "[xay]b]");
}

TEST(Regex, SpacesAreThoseOfUnicode) {
  EXPECT_EQ(all(R"(\s)", "a\xC2\xA0\xE1\xA0\x8E"), "[\xC2\xA0]");  // U+180E has not been one since Unicode 6.3
  EXPECT_EQ(all(R"(\S+)",
                "a\xC2\xA0"
                "b"),
            "[a][b]");
  EXPECT_EQ(all(R"([^\s]+)",
                "a\xC2\x85"
                "b"),
            "[a][b]");
}

TEST(Regex, LettersAndNumbersOfLaterVersions) {
  const std::string digit = "\xF0\x91\x9B\x9F", letter = "\xF0\xB1\x8D\x90";  // U+116DF (16.0), U+31350 (15.0)
  EXPECT_EQ(all(R"(\p{N}+)", "a1" + digit + "b"), "[1" + digit + "]");
  EXPECT_EQ(all(R"(\d+)", "a1" + digit + "b"), "[1" + digit + "]");
  EXPECT_EQ(all(R"([\r\p{L}]+)", "-a" + letter + "1"), "[a" + letter + "]");
  EXPECT_EQ(all(R"(\P{L}+)", "a" + letter + "12"), "[12]");
  EXPECT_EQ(all(R"(\p{^L}+)", "a" + letter + "12"), "[12]");
}

// The compiled code keeps a way back for each round of a repetition: 1,500 of these fill its first 32 KiB, and the match used to count as
// none.
TEST(Regex, LongMatchesTakeAStackThatGrows) {
  for (const size_t times : {1'000, 2'000, 100'000, 1'000'000}) {
    const std::string text = repeated("a'", times);
    EXPECT_EQ(cut(R"((?:\p{L}+['’-]?)+)", text + " b"), text + "| |b") << times;
  }
}

TEST(Regex, MatchingThatGivesUpIsAnError) {
  EXPECT_EQ(cut("(?:a|aa)+$", repeated("a", 60) + "!"),
            "pre_tokenizer: the regular expression '(?:a|aa)+$' gives up at byte 0 of 61: match limit exceeded");
  // More than the largest stack.
  EXPECT_EQ(cut("(?:(a)|(b)|(c))+d?", repeated("abc", 1'500'000)),
            "pre_tokenizer: the regular expression '(?:(a)|(b)|(c))+d?' gives up at byte 0 of 4500000: JIT stack limit reached");
}

TEST(Regex, EmptyMatchesCutAsInOniguruma) {
  EXPECT_EQ(cut(R"((?=(\d{3})+(?!\d)))", "1234567 12"), "1|234|567 12");
  EXPECT_EQ(cut("x*|b", "abc"), "a|b|c");
  EXPECT_EQ(cut("a*", "baac"), "b|aa|c");
  EXPECT_EQ(cut(R"(\n?)", "a\nb"), "a|\n|b");
  EXPECT_EQ(cut("(?!a)", "äba"), "ä|ba");
}

// What Oniguruma makes of these is what the tokenizers library 0.23 does.
TEST(Regex, ReadsOnigurumasSyntax) {
  EXPECT_EQ(cut("^a", "ab\nab"), "a|b\n|a|b");
  EXPECT_EQ(cut("a$", "ba\nba\n"), "b|a|\nb|a|\n");
  EXPECT_EQ(cut(".", "\r\n"), "\r|\n");
  EXPECT_EQ(cut("a{,2}", "aaab"), "aa|a|b");
  EXPECT_EQ(cut("(?i)b|c", "aBCc"), "a|B|C|c");
  EXPECT_EQ(cut("[]a]+", "a]b"), "a]|b");
  EXPECT_EQ(cut("[^]a]+", "a]b"), "a]|b");
  EXPECT_EQ(cut("(?i:'s|'t)", "a'Sb"), "a|'S|b");
  EXPECT_EQ(cut(R"([^\r\n\p{L}\p{N}]?+\p{L}+| ?[^\s\p{L}\p{N}]++)", "a b++"), "a| b|++");
  EXPECT_EQ(cut(R"(\x41)", "xAx"), "x|A|x");
  EXPECT_EQ(cut("a{x}", "a{x}b"), "a{x}|b");
}

TEST(Regex, WhatIsReadOtherwiseIsRefusedByName) {
  for (const auto& [pattern, part] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"([\p{L}&&[^\p{Han}]]+)", "'&&' inside a class"},
           {R"([\p{L}--\p{Han}])", "'--' inside a class"},
           {R"([\p{L}~~\p{Han}])", "'~~' inside a class"},
           {R"([a[^bc]])", "'[^' inside a class"},
           {R"([a-[bc]])", "'-[' inside a class"},
           {R"([[a]-c])", "']' beside '-' inside a class"},
           {R"([[:punct:]])", "'[:' inside a class"},
           {R"([\P{L}x])", R"('\P{L}' inside a class)"},
           {R"([\Sx])", R"('\S' inside a class)"},
           {R"(\h)", R"('\h')"},
           {R"(\w+)", R"('\w')"},
           {R"(\bx)", R"('\b')"},
           {R"(\v)", R"('\v')"},
           {R"(\pL)", R"('\p')"},
           {R"(\xe9)", R"('\xe9')"},
           {R"(\1)", R"('\1')"},
           {"(?m:a.b)", "'(?m:'"},
           {"(?s)a", "'(?s)'"},
           {"a(?i)b|c", "'(?i)'"},
           {"(?<n>a)", "'(?<n'"},
           {"(*FAIL)", "'(*FA'"},
           {"(?R)", "'(?R)'"},
           {"a{2}+", "'{2}+'"},
           {"a{2}?", "'{2}?'"},
       })
    EXPECT_NE(all(pattern, "").find(std::string("the regular expression '") + pattern + "' cannot be used: " + part), std::string::npos)
        << pattern << ": " << all(pattern, "");
  for (const char* broken : {"(", "[a", "a**", R"(\p{None})", "\\", R"(\p{L)"})
    EXPECT_NE(all(broken, "").find("cannot be used: "), std::string::npos) << broken << ": " << all(broken, "");
}

}  // namespace
}  // namespace galley
