#include "host/text/regex.hpp"

#include <gtest/gtest.h>

namespace galley {
namespace {

std::string all(const std::string& pattern, const std::string& text) {
  const Result<Regex> regex = Regex::compile(pattern);
  if (!regex) return regex.error().cause;
  Regex::Matches matches(*regex);
  std::string out;
  Regex::Span span;
  for (size_t from = 0; regex->find(text, from, matches, &span); from = span.end) out += "[" + text.substr(span.begin, span.end - span.begin) + "]";
  return out;
}

TEST(Regex, FindsWhatIsNotEmpty) {
  EXPECT_EQ(all("a*", "baac"), "[aa]");
  EXPECT_EQ(all("x", "baac"), "");
  EXPECT_EQ(all(R"( ?\p{L}+|\s+(?!\S)|\s+)", "one  two   "), "[one][ ][ two][   ]");
}

TEST(Regex, SpacesAreThoseOfUnicode) {
  EXPECT_EQ(all(R"(\s)", "a\xC2\xA0\xE1\xA0\x8E"), "[\xC2\xA0]");   // U+180E has not been one since Unicode 6.3
  EXPECT_EQ(all(R"(\S+)", "a\xC2\xA0" "b"), "[a][b]");
  EXPECT_EQ(all(R"([^\s]+)", "a\xC2\x85" "b"), "[a][b]");
}

TEST(Regex, LettersAndNumbersOfLaterVersions) {
  const std::string digit = "\xF0\x91\x9B\x9F", letter = "\xF0\xB1\x8D\x90";   // U+116DF (16.0), U+31350 (15.0)
  EXPECT_EQ(all(R"(\p{N}+)", "a1" + digit + "b"), "[1" + digit + "]");
  EXPECT_EQ(all(R"([\r\p{L}]+)", "-a" + letter + "1"), "[a" + letter + "]");
  EXPECT_EQ(all(R"(\P{L}+)", "a" + letter + "12"), "[12]");
}

TEST(Regex, WhatCannotBeUsedIsNamed) {
  EXPECT_NE(all("(", "").find("'('"), std::string::npos);
  EXPECT_NE(all(R"([\P{L}x])", "").find(R"('\P{L}' inside a class)"), std::string::npos);
}

}  // namespace
}  // namespace galley
