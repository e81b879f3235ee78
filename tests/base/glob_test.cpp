#include "host/base/glob.hpp"

#include <string>

#include <gtest/gtest.h>

namespace galley {
namespace {

TEST(Glob, Matches) {
  for (const auto& [pattern, text] : {std::pair{"", ""},
                                      {"*", ""},
                                      {"*", "abc"},
                                      {"a*c", "ac"},
                                      {"a*c", "abcbc"},
                                      {"*.txt", "a.txt.txt"},
                                      {"?b?", "abc"},
                                      {"h.*.attn.bias", "h.11.attn.bias"},
                                      {"[a-c]x", "bx"},
                                      {"[!a-c]x", "dx"},
                                      {"[^a-c]x", "dx"},
                                      {"[]]", "]"},
                                      {"[!]]", "x"},
                                      {"[a-]", "-"},
                                      {"*[0-9].txt", "x7.txt"},
                                      {"[ab", "[ab"},
                                      {"\xC3[\xA0-\xBF]", "\xC3\xA4"},
                                      {"*\xC3\xA4*", "h\xC3\xA4t"}}) {
    EXPECT_TRUE(glob_matches(pattern, text)) << pattern << " " << text;
  }
}

TEST(Glob, DoesNotMatch) {
  for (const auto& [pattern, text] : {std::pair{"", "a"},
                                      {"a", ""},
                                      {"?", ""},
                                      {"a*c", "acb"},
                                      {"*.txt", "a.txt.gz"},
                                      {"[a-c]", "d"},
                                      {"[!a-c]", "b"},
                                      {"[c-a]", "b"},
                                      {"[]]", "["},
                                      {"[ab", "a"},
                                      {"a", "A"},
                                      {"[a-z]", "B"}}) {
    EXPECT_FALSE(glob_matches(pattern, text)) << pattern << " " << text;
  }
}

// 30 stars on 3,000 characters take some 10^30 steps if every star tries every length.
TEST(Glob, ManyStarsAreQuick) {
  std::string pattern;
  for (int i = 0; i < 30; ++i) pattern += "*a";
  const std::string text(3000, 'a');
  EXPECT_TRUE(glob_matches(pattern, text));
  EXPECT_FALSE(glob_matches(pattern + "b", text));
}

TEST(Glob, IsOne) {
  EXPECT_TRUE(is_glob("a*"));
  EXPECT_TRUE(is_glob("a?"));
  EXPECT_TRUE(is_glob("[a]"));
  EXPECT_FALSE(is_glob("model.layers.0.weight"));
}

}  // namespace
}  // namespace galley
