// SipHash-2-4 with 128 bits, against the vectors of its authors: key 00 01 … 0f, texts 00 01 … of each length.
#include "host/base/siphash.hpp"

#include <gtest/gtest.h>

#include <string>

namespace galley {
namespace {

TEST(SipHash, TheVectorsOfItsAuthors) {
  const SipKey key = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
  std::string text;
  for (char c = 0; c < 15; ++c) text += c;
  const auto of = [&](size_t length) { return siphash(key, std::string_view(text).substr(0, length)); };
  EXPECT_EQ(of(0), (SipKey{0xe6a825ba047f81a3, 0x930255c71472f66d}));
  EXPECT_EQ(of(1), (SipKey{0x44af996bd8c187da, 0x45fc229b11597634}));
  EXPECT_EQ(of(15), (SipKey{0x11a8b03399e99354, 0xd9c3cf970fec087e}));
  EXPECT_NE(of(8), of(7));
}

}  // namespace
}  // namespace galley
