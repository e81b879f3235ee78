// Computes SipHash-2-4 with 128 bits (Aumasson and Bernstein 2012), which tells whether a text is from somebody who knows a key.
// Header-only.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace galley {

using SipKey = std::array<uint64_t, 2>;

inline std::array<uint64_t, 2> siphash(const SipKey& key, std::string_view text) {
  uint64_t a = 0x736f6d6570736575 ^ key[0], b = 0x646f72616e646f6d ^ key[1] ^ 0xee, c = 0x6c7967656e657261 ^ key[0],
           d = 0x7465646279746573 ^ key[1];
  const auto rounds = [&](int count) {
    for (int i = 0; i < count; ++i) {
      a += b, c += d;
      b = std::rotl(b, 13) ^ a, d = std::rotl(d, 16) ^ c;
      a = std::rotl(a, 32);
      c += b, a += d;
      b = std::rotl(b, 17) ^ c, d = std::rotl(d, 21) ^ a;
      c = std::rotl(c, 32);
    }
  };
  // Eight bytes a time; the last word is filled up with zeros, and ends with the length's lowest byte.
  for (size_t at = 0; at <= text.size(); at += 8) {
    uint64_t word = 0;
    const size_t left = text.size() - at;
    std::memcpy(&word, text.data() + at, left < 8 ? left : 8);
    if (left < 8) word |= uint64_t{text.size()} << 56;
    d ^= word;
    rounds(2);
    a ^= word;
  }
  c ^= 0xee;
  rounds(4);
  const uint64_t first = a ^ b ^ c ^ d;
  b ^= 0xdd;
  rounds(4);
  return {first, a ^ b ^ c ^ d};
}

}  // namespace galley
