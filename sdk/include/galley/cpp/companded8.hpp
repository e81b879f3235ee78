// The format "companded8": numbers in 8 bit after a curve that gives more codes to small ones (Ortiz et al., "FlashOptim: Optimizers for
// memory-efficient training", 2026, arXiv:2602.23349, companding of optimizer states).
//
// 32 numbers in a row share a scale s, the largest magnitude among them as BF16 (the paper has F16, in which averages of small gradients
// vanish).
//   signed:    code = 127 · 2t / (1 + |t|) rounded, t = x / s;   x = s · z / (2 − |z|), z = code / 127
//   unsigned:  code = 255 · √(x / s) rounded;                    x = s · (code / 255)²
// A number above 0 of an unsigned tensor is not stored as 0: a mean of squares that vanishes while the mean does not would make a step of
// any size. The paper has the scale of √x; since it is rounded to BF16, here it is that of x.
//
// Components: codes, I8 or U8, of the tensor's shape; scales, BF16, one for each 32. Option: "signed", 1 or 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "galley/cpp/split.hpp"

namespace galley::sdk::companded8 {

inline constexpr const char* kName = "companded8";
inline constexpr int64_t kGroup = 32;  // numbers

GALLEY_ANYWHERE int64_t groups(int64_t numbers) { return (numbers + kGroup - 1) / kGroup; }

/// Magnitudes as integers, in the same order.
GALLEY_ANYWHERE uint32_t magnitude_bits(float x) { return split::detail::bits(x) & 0x7FFFFFFFu; }

/// The scale of a group with this largest magnitude: as BF16, at most the largest finite one.
GALLEY_ANYWHERE uint16_t scale(uint32_t most) {
  const uint16_t s = split::rounded(split::detail::number(most));
  return s == 0x7F80u && most < 0x7F800000u ? static_cast<uint16_t>(0x7F7Fu) : s;
}
GALLEY_ANYWHERE float value_of(uint16_t scale) { return split::detail::number(static_cast<uint32_t>(scale) << 16); }

/// By which numbers are multiplied before they are coded; 0 for scales that have no inverse.
GALLEY_ANYWHERE float inverse(uint16_t scale) {
  const float s = value_of(scale);
  return s >= 1.17549435e-38f ? 1.0f / s : 0.0f;
}

template <bool is_signed>
GALLEY_ANYWHERE uint8_t code(float x, float inverse_scale) {
  float t = x * inverse_scale;
  if constexpr (is_signed) {
    t = t > 1.0f ? 1.0f : t > -1.0f ? t : -1.0f;  // not NaN either
    const float z = 254.0f * t / (1.0f + (t < 0 ? -t : t));
    return static_cast<uint8_t>(static_cast<int8_t>(z + (z < 0 ? -0.5f : 0.5f)));
  } else {
    t = t > 1.0f ? 1.0f : t > 0.0f ? t : 0.0f;
    const int at = static_cast<int>(255.0f * sqrtf(t) + 0.5f), least = x > 0 ? 1 : 0;
    return static_cast<uint8_t>(at > least ? at : least);
  }
}

/// What a code stands for, divided by the scale.
GALLEY_ANYWHERE float entry(uint8_t code, bool is_signed) {
  if (!is_signed) {
    const float z = static_cast<float>(code) * (1.0f / 255.0f);
    return z * z;
  }
  const float z = static_cast<float>(static_cast<int8_t>(code)) * (1.0f / 127.0f);
  return z / (2.0f - (z < 0 ? -z : z));
}

}  // namespace galley::sdk::companded8
