// The format "six-bit": floats of 6 bits, E3M2 with a scale that is a power of two for 32 numbers in a row, as MXFP6 (Rouhani et al.,
// "Microscaling data formats for deep learning", 2023, arXiv:2310.10537). A code is a sign, three bits of exponent with bias 3, and two of
// mantissa; there is neither infinity nor NaN. Bits of a code are in two planes, of four and of two, so that no code crosses a byte (after
// Xia et al., "FP6-LLM", 2024, arXiv:2401.14112).
//
// Components, of a tensor (…, C), C a multiple of 32:
//   ""        low four bits   U8 (…, C / 2): byte i of 16 has those of numbers i and, in its high half, i + 16
//   ".top"    high two bits   U8 (…, C / 4): byte i of 8 has those of numbers i, i + 8, i + 16 and i + 24, the first in the lowest bits
//   ".scale"  exponents       U8 (…, C / 32), of two, plus 127
#pragma once

#include <cstring>

#include "galley/cpp/anywhere.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/node.hpp"

namespace six_bit {

inline constexpr const char* kName = "six-bit";
inline constexpr int kGroup = 32;

GALLEY_ANYWHERE uint32_t bits_of(float x) {
  uint32_t out;
  memcpy(&out, &x, sizeof out);
  return out;
}
GALLEY_ANYWHERE float float_of(uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}

/// A code's magnitude, in sixteenths: 0 to 448.
GALLEY_ANYWHERE int32_t sixteenths(int32_t code) {
  const int32_t exponent = code >> 2 & 7, has_exponent = exponent > 0 ? 1 : 0;
  return ((code & 3) | has_exponent << 2) << (exponent - has_exponent);
}
GALLEY_ANYWHERE float value(int32_t code) {
  const auto magnitude = static_cast<float>(sixteenths(code)) * 0.0625f;
  return code & 32 ? -magnitude : magnitude;
}

/// 2^(stored − 127); of 0: 0.
GALLEY_ANYWHERE float scale_of(uint8_t stored) { return float_of(static_cast<uint32_t>(stored) << 23); }

/// What is stored for a group with this largest magnitude: the largest number has the exponent 4, where 28 is the last one.
GALLEY_ANYWHERE uint8_t stored_scale(uint32_t most) {
  const int exponent = static_cast<int>(most >> 23) - 4;
  return static_cast<uint8_t>(exponent < 1 ? 0 : exponent);
}

/// The code nearest to x / scale, ties to even. What is not a number becomes the largest one.
GALLEY_ANYWHERE int32_t code_of(float x, float scale) {
  if (!(scale > 0)) return 0;
  const float magnitude = float_of(bits_of(x) & 0x7FFFFFFFu) / scale;
  const int32_t sign = bits_of(x) >> 31 ? 32 : 0;
  if (!(magnitude < 28)) return sign | 31;
  int exponent = static_cast<int>(bits_of(magnitude) >> 23) - 127;
  if (exponent < -2) exponent = -2;
  const float units = magnitude * float_of(static_cast<uint32_t>(129 - exponent) << 23);  // of 2^(exponent − 2): below 8
  const auto nearest = static_cast<int32_t>(units + 12582912.0f - 12582912.0f);
  return sign | ((exponent + 2) * 4 + nearest);
}

/// A tensor in the format, as it is in memory. Copied to a device as it is.
struct Numbers {
  Numbers(uint8_t* of_low, uint8_t* of_top, uint8_t* of_scale) : low(of_low), top(of_top), scale(of_scale) {}
  explicit Numbers(const galley_operand& t) {
    if (t.n_components != 3) galley::sdk::unsupported("components other than those of six-bit");
    low = static_cast<uint8_t*>(t.components[0]->data);
    top = static_cast<uint8_t*>(t.components[1]->data);
    scale = static_cast<uint8_t*>(t.components[2]->data);
  }
  int64_t unit() const { return kGroup; }

  GALLEY_ANYWHERE int32_t code(int64_t group, int i) const {
    const int of_low = low[group * 16 + i % 16] >> 4 * (i / 16) & 15, of_top = top[group * 8 + i % 8] >> 2 * (i / 8) & 3;
    return of_low | of_top << 4;
  }
  /// A group of numbers, packed.
  GALLEY_ANYWHERE void pack(int64_t group, const float* x) const {
    uint32_t most = 0;
    for (int i = 0; i < kGroup; ++i) {
      const uint32_t m = bits_of(x[i]) & 0x7FFFFFFFu;
      most = m > most ? m : most;
    }
    scale[group] = stored_scale(most);
    const float s = scale_of(scale[group]);
    for (int i = 0; i < 16; ++i) low[group * 16 + i] = static_cast<uint8_t>((code_of(x[i], s) & 15) | (code_of(x[i + 16], s) & 15) << 4);
    for (int i = 0; i < 8; ++i) {
      int32_t four = 0;
      for (int k = 0; k < 4; ++k) four |= code_of(x[8 * k + i], s) >> 4 << 2 * k;
      top[group * 8 + i] = static_cast<uint8_t>(four);
    }
  }

  uint8_t *low, *top, *scale;
};

/// On the CPU: 32 numbers at a time, in loops of a fixed length, which compilers make vectors of.
template <class To>
void decode(const Numbers& from, int64_t first, int64_t n, To* to) {
  for (const int64_t end = first + n; first < end;) {
    const int64_t group = first / kGroup, begin = first % kGroup, size = kGroup - begin < end - first ? kGroup - begin : end - first;
    const uint8_t *const low = from.low + group * 16, *const top = from.top + group * 8;
    int32_t codes[kGroup];
    for (int i = 0; i < 16; ++i) codes[i] = low[i] & 15;
    for (int i = 0; i < 16; ++i) codes[i + 16] = low[i] >> 4;
    for (int k = 0; k < 4; ++k)
      for (int i = 0; i < 8; ++i) codes[8 * k + i] |= (top[i] >> 2 * k & 3) << 4;
    const float scale = scale_of(from.scale[group]);
    float room[kGroup];
    for (int i = 0; i < kGroup; ++i) room[i] = value(codes[i]) * scale;
    if (size == kGroup)
      for (int i = 0; i < kGroup; ++i) galley::sdk::from_float(room[i], to[i]);
    else
      for (int64_t i = 0; i < size; ++i) galley::sdk::from_float(room[begin + i], to[i]);
    first += size;
    to += size;
  }
}
inline void encode(const Numbers& to, int64_t first, int64_t n, const float* from) {
  for (int64_t at = 0; at < n; at += kGroup) to.pack((first + at) / kGroup, from + at);
}

}  // namespace six_bit
