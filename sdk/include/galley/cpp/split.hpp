// The format "split": a number as BF16 and an 8-bit correction (Ortiz et al., "FlashOptim: Optimizers for memory-efficient training", 2026,
// arXiv:2602.23349, weight splitting). Three bytes a number instead of four, and what reads BF16 reads the first two as they lie.
//
// y is x rounded to BF16, to the nearest, ties to even; h is half a unit in the last place of y; the correction is (x − y) / h in 128ths,
// from −127 to 127. x comes back as y + correction / 128 · h, to within h / 128: 2⁻¹⁶ of it at most. The paper has 127ths; with 128ths the
// sum is exact in F32, and splitting it again changes nothing. Below 2⁻¹¹¹, and for infinity and NaN, the correction is 0.
//
// Components: y, BF16, and the corrections, I8, both of the tensor's shape. No options.
#pragma once

#include <cstdint>
#include <cstring>

#include "galley/cpp/anywhere.hpp"

namespace galley::sdk::split {

inline constexpr const char* kName = "split";

namespace detail {

GALLEY_ANYWHERE uint32_t bits(float x) {
  uint32_t out;
  memcpy(&out, &x, sizeof out);
  return out;
}
GALLEY_ANYWHERE float number(uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
GALLEY_ANYWHERE uint32_t exponent(uint16_t y) { return y >> 7 & 0xFFu; }
/// Those that have a correction: h and 1 / h are normal numbers.
GALLEY_ANYWHERE bool is_corrected(uint32_t exponent) { return exponent >= 16 && exponent < 255; }

}  // namespace detail

/// x as BF16. NaN stays NaN.
GALLEY_ANYWHERE uint16_t rounded(float x) {
  const uint32_t b = detail::bits(x), nearest = (b + 0x7FFFu + (b >> 16 & 1u)) >> 16;
  return static_cast<uint16_t>((b & 0x7FFFFFFFu) > 0x7F800000u ? (b >> 16 | 0x40u) : nearest);
}

/// What y = rounded(x) lacks.
GALLEY_ANYWHERE int8_t correction(float x, uint16_t y) {
  const uint32_t e = detail::exponent(y);
  const bool has = detail::is_corrected(e);
  const float missing = has ? x - detail::number(static_cast<uint32_t>(y) << 16) : 0.0f;
  const float of_128 = missing * detail::number((has ? 262u - e : 127u) << 23) * 128.0f;
  int at = static_cast<int>(of_128 + (of_128 < 0 ? -0.5f : 0.5f));
  at = at > 127 ? 127 : at;
  return static_cast<int8_t>(at < -127 ? -127 : at);
}

GALLEY_ANYWHERE float value(uint16_t y, int8_t correction) {
  const uint32_t e = detail::exponent(y);
  const float h = detail::is_corrected(e) ? detail::number((e - 8u) << 23) : 0.0f;
  return detail::number(static_cast<uint32_t>(y) << 16) + static_cast<float>(correction) * 0.0078125f * h;
}

}  // namespace galley::sdk::split
