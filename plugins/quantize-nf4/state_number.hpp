// A positive number as 12 decimal digits with an exponent, "5.23612946272e-02": enough to be read back as the same F32.
#pragma once

#include <cstdint>

#include "galley/cpp/anywhere.hpp"

namespace galley::four_bit_folder {

inline constexpr int64_t kNumberBytes = 17;

/// Writes kNumberBytes characters: of zero, and of what is below it or no number, those of zero.
GALLEY_ANYWHERE void write_number(float x, uint8_t* to) {
  constexpr int kDigits = 12;
  double v = x > 0 ? static_cast<double>(x) : 0.0;
  int exponent = 0;
  uint64_t digits = 0;
  if (v > 0 && v < 1e39) {
    for (; v >= 10; ++exponent) v /= 10;
    for (; v < 1; --exponent) v *= 10;
    digits = static_cast<uint64_t>(v * 1e11 + 0.5);
    if (digits >= 1000000000000ull) {
      digits /= 10;
      ++exponent;
    }
  }
  for (int i = kDigits; i > 0; --i) {
    to[i == 1 ? 0 : i] = static_cast<uint8_t>('0' + digits % 10);
    digits /= 10;
  }
  to[1] = '.';
  to[kDigits + 1] = 'e';
  to[kDigits + 2] = exponent < 0 ? '-' : '+';
  const int magnitude = exponent < 0 ? -exponent : exponent;
  to[kDigits + 3] = static_cast<uint8_t>('0' + magnitude / 10);
  to[kDigits + 4] = static_cast<uint8_t>('0' + magnitude % 10);
}

}  // namespace galley::four_bit_folder
