#include "host/base/printable.hpp"

#include <gtest/gtest.h>

namespace galley {
namespace {

TEST(Printable, ControlCharactersAreShown) {
  EXPECT_EQ(printable("a\x1b[2J\tb\nc\x7f", Lines::Escape), "a\\x1b[2J\\x09b\\nc\\x7f");
  EXPECT_EQ(printable("a\x1b[2J\tb\nc\r", Lines::Keep), "a\\x1b[2J\tb\nc\\x0d");
  EXPECT_EQ(printable(std::string_view("\0x", 2), Lines::Keep), "\\x00x");
}

TEST(Printable, SoAreThoseOfUnicode) {
  // U+009B begins a command on terminals as ESC [ does.
  EXPECT_EQ(printable("\xC2\x9B"
                      "2J\xC2\x85",
                      Lines::Keep),
            "\\x9b2J\\x85");
  EXPECT_EQ(printable("\xC2\xA0ünï 世界 \xC2", Lines::Escape), "\xC2\xA0ünï 世界 \xC2");
}

}  // namespace
}  // namespace galley
