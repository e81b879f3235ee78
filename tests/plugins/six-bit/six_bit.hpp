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

#if defined(__AVX512BW__)
#include <immintrin.h>
#endif

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

#if defined(__AVX512BW__)
/// What the magnitudes of codes are, in BF16 and in F32.
struct Magnitudes {
  uint16_t bf16[32];
  float f32[32];
  Magnitudes() {
    for (int code = 0; code < 32; ++code) {
      f32[code] = value(code);
      bf16[code] = static_cast<uint16_t>(bits_of(f32[code]) >> 16);  // three bits of mantissa at most
    }
  }
};
inline const Magnitudes& magnitudes() {
  static const Magnitudes all;
  return all;
}

/// The 32 codes of a group, each in 16 bits.
inline __m512i codes_of(const uint8_t* low, const uint8_t* top) {
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(low)));
  const __m256i first = _mm256_and_si256(bytes, _mm256_set1_epi16(15)), second = _mm256_srli_epi16(bytes, 4);
  const __m512i of_low = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
  const __m128i eight = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(top)));
  const __m512i by = _mm512_set_epi64(0x0006000600060006, 0x0006000600060006, 0x0004000400040004, 0x0004000400040004, 0x0002000200020002,
                                      0x0002000200020002, 0, 0);
  const __m512i of_top = _mm512_and_si512(_mm512_srlv_epi16(_mm512_broadcast_i32x4(eight), by), _mm512_set1_epi16(3));
  return _mm512_or_si512(of_low, _mm512_slli_epi16(of_top, 4));
}

/// Groups in BF16, from one with 32 numbers to make: magnitudes are looked up, and their exponents moved. Returns how many it has made: it
/// ends where a number would not be a normal one.
inline int64_t groups_of(const Numbers& from, int64_t first, int64_t n, galley::sdk::Bf16* to) {
  const __m512i all = _mm512_loadu_si512(magnitudes().bf16), of_sign = _mm512_set1_epi16(32), of_magnitude = _mm512_set1_epi16(31);
  for (int64_t k = 0; k < n; ++k, to += kGroup) {
    const int64_t group = first + k;
    const int scale = from.scale[group];
    if (scale < 16 || scale > 240) return k;
    const __m512i codes = codes_of(from.low + group * 16, from.top + group * 8), unit = _mm512_permutexvar_epi16(codes, all);
    const __m512i moved = _mm512_mask_add_epi16(unit, _mm512_test_epi16_mask(codes, of_magnitude), unit,
                                                _mm512_set1_epi16(static_cast<int16_t>((scale - 127) * 128)));
    _mm512_storeu_si512(to, _mm512_or_si512(moved, _mm512_slli_epi16(_mm512_and_si512(codes, of_sign), 10)));
  }
  return n;
}
inline int64_t groups_of(const Numbers& from, int64_t first, int64_t n, float* to) {
  const __m512 low = _mm512_loadu_ps(magnitudes().f32), high = _mm512_loadu_ps(magnitudes().f32 + 16);
  for (int64_t k = 0; k < n; ++k, to += kGroup) {
    const int64_t group = first + k;
    const __m512i codes = codes_of(from.low + group * 16, from.top + group * 8);
    const __m512 scale = _mm512_set1_ps(scale_of(from.scale[group]));
    for (int half = 0; half < 2; ++half) {
      const __m512i at = _mm512_cvtepu16_epi32(half ? _mm512_extracti64x4_epi64(codes, 1) : _mm512_castsi512_si256(codes));
      const __m512 magnitude = _mm512_mul_ps(_mm512_permutex2var_ps(low, at, high), scale);
      const __m512i sign = _mm512_slli_epi32(_mm512_and_si512(at, _mm512_set1_epi32(32)), 26);
      _mm512_storeu_si512(to + 16 * half, _mm512_or_si512(_mm512_castps_si512(magnitude), sign));
    }
  }
  return n;
}
#endif
template <class To>
int64_t groups_of(const Numbers&, int64_t, int64_t, To*) {
  return 0;
}

/// On the CPU: 32 numbers at a time, by look-up where there are 512-bit vectors, else in loops of a fixed length, which compilers make
/// vectors of.
template <class To>
void decode(const Numbers& from, int64_t first, int64_t n, To* to) {
  for (const int64_t end = first + n; first < end;) {
    const int64_t group = first / kGroup, begin = first % kGroup, size = kGroup - begin < end - first ? kGroup - begin : end - first;
    if (begin == 0) {
      const int64_t made = groups_of(from, group, (end - first) / kGroup, to) * kGroup;
      first += made;
      to += made;
      if (made > 0) continue;
    }
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
