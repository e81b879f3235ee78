#include "host/tools/report/columns.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

namespace galley {
namespace {

TEST(Columns, CharactersTakeNoneOneOrTwo) {
  EXPECT_EQ(display_width("abc"), 3u);
  EXPECT_EQ(display_width("█±…"), 3u);
  EXPECT_EQ(display_width("世界"), 4u);
  EXPECT_EQ(display_width("e\xCC\x81"), 1u);      // e and U+0301, which stands over it
  EXPECT_EQ(display_width("a\xFF\xE4\xB8"), 4u);  // no UTF-8, and a character that is not whole
  EXPECT_EQ(bytes_within("世界", 3), 3u);
  EXPECT_EQ(bytes_within("ab", 9), 2u);
}

TEST(Columns, NamesAreCutInTheMiddle) {
  EXPECT_EQ(cut_middle("h.0.attn.weight", 15), "h.0.attn.weight");
  EXPECT_EQ(cut_middle("h.0.attn.weight", 9), "h.0.…ight");
  EXPECT_EQ(cut_middle("h.0.attn.weight", 1), "…");
  EXPECT_EQ(cut_middle("h.0.attn.weight", 0), "");
  for (size_t width = 1; width < 12; ++width) EXPECT_LE(display_width(cut_middle("世界世界世界", width)), width);
  EXPECT_EQ(left_in("世界", 6), "世界  ");
  EXPECT_EQ(right_in("1 ± 2", 7), "  1 ± 2");
  EXPECT_EQ(left_in("abcdef", 3), "a…f");
}

TEST(Columns, LinesAreBrokenAtSpaces) {
  EXPECT_EQ(wrapped("one two three", 8, 2), "one two\n  three");
  EXPECT_EQ(wrapped("one two three four", 8, 2), "one two\n  three\n  four");
  EXPECT_EQ(wrapped("averylongword and", 6), "averylongword\nand");
  EXPECT_EQ(wrapped("a\n\nb c", 1), "a\n\nb\nc");
  EXPECT_EQ(wrapped("", 5), "");
  EXPECT_EQ(wrapped("fits within", 11, 4), "fits within");
  EXPECT_EQ(wrapped("one two", 3, 9), "one\n         two");  // an indent without room still ends
  // Below the entry that goes on, and below the text where there is none.
  EXPECT_EQ(wrapped_lines("  name  does this and that\n", 20), "  name  does this\n        and that\n");
  EXPECT_EQ(wrapped_lines("  does this and that", 12), "  does this\n    and that");
  EXPECT_EQ(wrapped_lines("a\nb\n", 12), "a\nb\n");
}

TEST(Columns, TheLocaleIsTheFirstThatIsSet) {
  setenv("LC_ALL", "", 1);
  setenv("LC_CTYPE", "de_DE.utf8", 1);
  setenv("LANG", "C", 1);
  EXPECT_TRUE(utf8_locale());
  setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(utf8_locale());
  setenv("LC_ALL", "C.UTF-8", 1);
  EXPECT_TRUE(utf8_locale());
}

}  // namespace
}  // namespace galley
