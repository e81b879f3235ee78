#include "host/base/utf8.hpp"

#include <gtest/gtest.h>

#include <random>

#include "host/base/json.hpp"
#include "host/base/toml.hpp"

namespace galley {
namespace {

TEST(Utf8OfBytes, TextStaysAsItIs) {
  for (const char* text : {"", "plain", "caf\u00e9", "\u65e5\u672c", "\U0001f600", "\ufffd", "\U0010f6ff", "\U0010f800"}) {
    EXPECT_EQ(utf8_of_bytes(text), text);
    EXPECT_EQ(bytes_of_utf8(text), text);
  }
}

TEST(Utf8OfBytes, BytesBecomeCharacters) {
  EXPECT_EQ(utf8_of_bytes("caf\xe9.txt"), "caf\U0010f7e9.txt");
  EXPECT_EQ(utf8_of_bytes("\xc3"), "\U0010f7c3");
  EXPECT_EQ(utf8_of_bytes("\xed\xa0\x80"), "\U0010f7ed\U0010f7a0\U0010f780");  // a surrogate
  // Such a character is not taken for the byte that it would stand for.
  EXPECT_EQ(bytes_of_utf8(utf8_of_bytes("\U0010f7e9")), "\U0010f7e9");
}

TEST(Utf8OfBytes, AnyBytesComeBack) {
  std::mt19937_64 random(7);
  const std::string seen[] = {"\U0010f7e9", "\xe9", "a", "\xf4\x8f", "\x9f", "\U0010f700", std::string(1, '\0'), "\xff"};
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    for (uint64_t n = random() % 12; n > 0; --n)
      bytes += random() % 2 ? seen[random() % std::size(seen)] : std::string(1, static_cast<char>(random()));
    EXPECT_TRUE(is_utf8(utf8_of_bytes(bytes)));
    EXPECT_EQ(bytes_of_utf8(utf8_of_bytes(bytes)), bytes);
  }
}

TEST(Utf8OfBytes, InTablesAtAnyDepth) {
  const toml::table table{
      {"k\xe9", "v\xe9"}, {"list", toml::array{"\xff", 3, toml::array{true, "\xfe"}}}, {"in", toml::table{{"x", 0.5}, {"y", "\xfd"}}}};
  const toml::table made = with_texts(table, utf8_of_bytes);
  EXPECT_EQ(made["k\U0010f7e9"].value<std::string>(), "v\U0010f7e9");
  EXPECT_EQ(made["list"][2][1].value<std::string>(), "\U0010f7fe");
  EXPECT_EQ(made["list"][1].value<int64_t>(), 3);
  EXPECT_EQ(made["in"]["x"].value<double>(), 0.5);
  EXPECT_TRUE(with_texts(made, bytes_of_utf8) == table);
}

TEST(JsonQuote, IsUtf8WhateverIsQuoted) {
  EXPECT_EQ(json_quote("caf\xe9 \xc3\xa9"), "\"caf\ufffd \u00e9\"");
  EXPECT_EQ(json_quote("\xf0\x9f"), "\"\ufffd\"");
}

}  // namespace
}  // namespace galley
