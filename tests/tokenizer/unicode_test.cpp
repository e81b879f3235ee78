#include "host/tokens/tokenizer/unicode.hpp"

#include <gtest/gtest.h>

namespace galley {
namespace {

const std::string fffd = "\xEF\xBF\xBD";

TEST(Unicode, BrokenBytesBecomeOneCharacterAPart) {
  int64_t broken = 0;
  EXPECT_EQ(valid_utf8("a\xFF\xFE z", &broken), "a" + fffd + fffd + " z");
  EXPECT_EQ(broken, 2);
  // The table of the Unicode Standard, section 3.9: a part that could have gone on is one.
  EXPECT_EQ(valid_utf8("\xF1\x80\x80\xE1\x80\xC2 b", nullptr), fffd + fffd + fffd + " b");
  EXPECT_EQ(valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82 c", nullptr), fffd + fffd + fffd + fffd + fffd + fffd + fffd + fffd + " c");
  EXPECT_EQ(valid_utf8("\xED\xA0\x80", nullptr), fffd + fffd + fffd);             // a surrogate
  EXPECT_EQ(valid_utf8("\xF4\x90\x80\x80", nullptr), fffd + fffd + fffd + fffd);  // beyond U+10FFFF
  EXPECT_EQ(valid_utf8("\xE2\x82", nullptr), fffd);                               // cut off
  EXPECT_FALSE(is_utf8("\xE2\x82"));
  EXPECT_TRUE(is_utf8(fffd));
}

TEST(Unicode, CodePointsComeBack) {
  for (const char32_t c : {U'\0', U'a', U'\x7F', U'\x80', U'\x7FF', U'\x800', U'\xD7FF', U'\xE000', U'\xFFFF', U'\x10000', U'\x10FFFF'}) {
    std::string text;
    append_utf8(c, &text);
    const CodePoint back = next_code_point(text);
    EXPECT_TRUE(back.valid);
    EXPECT_EQ(back.value, c);
    EXPECT_EQ(back.bytes, text.size());
  }
}

TEST(Unicode, Composes) {
  EXPECT_EQ(normalized("e\xCC\x81", NormalForm::C), "\xC3\xA9");
  EXPECT_EQ(normalized("plain", NormalForm::C), "plain");
  EXPECT_EQ(normalized("\xE2\x84\xAB", NormalForm::C), "\xC3\x85");                                     // Å of physics
  EXPECT_EQ(normalized("\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", NormalForm::C), "\xEA\xB0\x81");         // Hangul
  EXPECT_EQ(normalized(std::string("a\0e\xCC\x81", 5), NormalForm::C), std::string("a\0\xC3\xA9", 4));  // a NUL is a character
}

TEST(Unicode, Classes) {
  for (const char32_t c : {U'0', U'\x664', U'\x2167', U'\xBD', U'\x116DF'}) EXPECT_TRUE(is_numeric(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U'a', U' ', U'\x4E00'}) EXPECT_FALSE(is_numeric(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U' ', U'\t', U'\x85', U'\xA0', U'\x3000'}) EXPECT_TRUE(is_space(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U'\x180E', U'\x200B', U'a', U'\0'}) EXPECT_FALSE(is_space(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U'a', U'_', U'7', U'\x301', U'\x4E00'}) EXPECT_TRUE(is_word(c)) << static_cast<uint32_t>(c);
  for (const char32_t c : {U'-', U' ', U'\x1F600'}) EXPECT_FALSE(is_word(c)) << static_cast<uint32_t>(c);
}

}  // namespace
}  // namespace galley
