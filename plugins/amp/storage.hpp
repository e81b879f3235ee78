// F32 to BF16, in bits.
#pragma once

#include <bit>
#include <cstdint>

#include "galley/cpp/plugin.hpp"

namespace galley::amp {

/// The upper half of x after `below` was added to the lower one; a NaN stays one, what is infinite stays as it is, and so does what
/// would become infinite.
inline uint16_t carried(float x, uint32_t below) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sum = bits + below;
  const uint16_t cut = static_cast<uint16_t>(bits >> 16);
  const uint16_t up = static_cast<uint16_t>(sum >> 16);
  const bool finite = magnitude < 0x7F800000u;
  return finite ? up : magnitude > 0x7F800000u ? static_cast<uint16_t>(cut | 0x40u) : cut;
}

/// Ties to even.
inline uint16_t nearest(float x) { return carried(x, 0x7FFFu + (std::bit_cast<uint32_t>(x) >> 16 & 1u)); }

/// Up where 16 random bits reach what is cut off. A number past the largest of BF16 becomes infinite no sooner than by rounding.
inline uint16_t cut(float x, uint32_t random) {
  const uint16_t y = carried(x, random);
  return (y & 0x7FFFu) == 0x7F80u ? nearest(x) : y;
}

/// Element i draws half i % 2 of word i / 2 % 4 of block i / 8.
inline constexpr int64_t draws = 8;
inline uint32_t half_of(const galley_philox_block& block, int64_t i) { return block.word[i / 2 % 4] >> 16 * (i % 2) & 0xFFFFu; }

inline float widened(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace galley::amp
