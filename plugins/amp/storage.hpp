// F32 to BF16, in bits, the same on every device.
#pragma once

#include <cstdint>
#include <cstring>

#include "galley/cpp/half.hpp"
#include "galley/cpp/plugin.hpp"

namespace galley::amp {

GALLEY_HOST_DEVICE inline uint32_t bits_of(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

/// The upper half of x after `below` was added to the lower one; a NaN stays one, what is infinite stays as it is, and so does what
/// would become infinite.
GALLEY_HOST_DEVICE inline uint16_t carried(float x, uint32_t below) {
  const uint32_t bits = bits_of(x), magnitude = bits & 0x7FFFFFFFu;
  const uint32_t sum = bits + below;
  const uint16_t cut = static_cast<uint16_t>(bits >> 16);
  const uint16_t up = static_cast<uint16_t>(sum >> 16);
  const bool finite = magnitude < 0x7F800000u;
  return finite ? up : magnitude > 0x7F800000u ? static_cast<uint16_t>(cut | 0x40u) : cut;
}

/// Ties to even.
GALLEY_HOST_DEVICE inline uint16_t nearest(float x) { return carried(x, 0x7FFFu + (bits_of(x) >> 16 & 1u)); }

/// Up where 16 random bits reach what is cut off. A number past the largest of BF16 becomes infinite no sooner than by rounding.
GALLEY_HOST_DEVICE inline uint16_t cut(float x, uint32_t random) {
  const uint16_t y = carried(x, random);
  return (y & 0x7FFFu) == 0x7F80u ? nearest(x) : y;
}

/// Element i draws half i % 2 of word i / 2 % 4 of block i / 8.
inline constexpr int64_t draws = 8;
inline uint32_t half_of(const galley_philox_block& block, int64_t i) { return block.word[i / 2 % 4] >> 16 * (i % 2) & 0xFFFFu; }

inline float widened(uint16_t bits) { return sdk::to_float(sdk::Bf16{bits}); }

}  // namespace galley::amp
