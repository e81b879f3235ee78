// Codes of the format "four-bit" (four_bit.hpp) made and read on the CPU, with 256-bit and 512-bit vectors, and the same bits without.
//
// Reading. The 16 numbers that the codes of a block stand for are made once, in the dtype that is asked for, and looked up: a shuffle for
// 16 or 32 numbers.
#pragma once

#include "four_bit.hpp"
#include "galley/cpp/half.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace galley::four_bit {

namespace detail {

/// The code books by code, and the bounds between entries by rank.
struct Tables {
  float entries[2][16], bounds[2][15];
  Tables() {
    for (const Type type : {kNf4, kFp4}) {
      for (int k = 0; k < 16; ++k) entries[type][k] = value(k, type);
      for (int k = 0; k < 15; ++k) bounds[type][k] = bound(k, type);
    }
  }
};
inline const Tables& tables() {
  static const Tables all;
  return all;
}

/// n numbers of a block, the first of which has a code in a high half.
template <class To>
inline void look_up(const uint8_t* codes, int64_t n, const To (&table)[16], To* out) {
  int64_t i = 0;
#if defined(__AVX512BW__)
  if constexpr (sizeof(To) == 4) {
    const __m512 all = _mm512_loadu_ps(table);
    for (; i + 16 <= n; i += 16) {
      const __m512i bytes = _mm512_cvtepu8_epi64(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2)));
      const __m512i at = _mm512_or_si512(_mm512_srli_epi64(bytes, 4), _mm512_slli_epi64(bytes, 32));  // of each, 4 bits are read
      _mm512_storeu_ps(out + i, _mm512_permutexvar_ps(at, all));
    }
  } else {
    const __m512i all = _mm512_broadcast_i64x4(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(table)));
    for (; i + 32 <= n; i += 32) {
      const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2)));
      const __m512i at = _mm512_or_si512(_mm512_srli_epi32(bytes, 4), _mm512_slli_epi32(bytes, 16));  // of each, 5 bits are read
      _mm512_storeu_si512(out + i, _mm512_permutexvar_epi16(at, all));
    }
  }
#elif defined(__AVX2__)
  if constexpr (sizeof(To) == 4) {
    const __m256 low = _mm256_loadu_ps(table), high = _mm256_loadu_ps(table + 8);
    for (; i + 8 <= n; i += 8) {
      int four;
      std::memcpy(&four, codes + i / 2, sizeof four);
      const __m256i bytes = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(four));
      const __m256i at = _mm256_or_si256(_mm256_srli_epi64(bytes, 4), _mm256_slli_epi64(bytes, 32));
      const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(at, 28));  // bit 3 becomes the sign, which the blend reads
      _mm256_storeu_ps(out + i, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, at), _mm256_permutevar8x32_ps(high, at), upper));
    }
  } else {
    // Bytes are looked up, those of each half of a number by themselves.
    const __m128i first = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table)),
                  second = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table + 8)), byte = _mm_set1_epi16(255);
    const __m128i low = _mm_packus_epi16(_mm_and_si128(first, byte), _mm_and_si128(second, byte)),
                  high = _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8)), nibble = _mm_set1_epi8(15);
    for (; i + 32 <= n; i += 32) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(codes + i / 2));
      const __m128i even = _mm_and_si128(_mm_srli_epi16(bytes, 4), nibble), odd = _mm_and_si128(bytes, nibble);
      auto* const to = reinterpret_cast<__m128i*>(out + i);
      const __m128i at[2] = {_mm_unpacklo_epi8(even, odd), _mm_unpackhi_epi8(even, odd)};
      for (int k = 0; k < 2; ++k) {
        const __m128i lower = _mm_shuffle_epi8(low, at[k]), upper = _mm_shuffle_epi8(high, at[k]);
        _mm_storeu_si128(to + 2 * k, _mm_unpacklo_epi8(lower, upper));
        _mm_storeu_si128(to + 2 * k + 1, _mm_unpackhi_epi8(lower, upper));
      }
    }
  }
#endif
  for (; i < n; ++i) out[i] = table[i % 2 ? codes[i / 2] & 15 : codes[i / 2] >> 4];
}

}  // namespace detail

/// Numbers at … at + n − 1 of the tensor, each rounded once to `To`: float, Bf16 or F16.
template <class To>
inline void decode(const Coded& from, int64_t at, int64_t n, To* out) {
  const float* const entries = detail::tables().entries[from.type];
  const float* const book = dynamic8::book(true);
  for (const int64_t end = at + n; at < end;) {
    const int64_t block = at / from.block, until = (block + 1) * from.block < end ? (block + 1) * from.block : end;
    const float absmax = from.absmax_of(block, book);
    alignas(64) To table[16];
#pragma GCC unroll 1  // the compiler makes a vector of it, and would otherwise unroll it first: 2 ns a number in F16
    for (int k = 0; k < 16; ++k) sdk::from_float(entries[k] * absmax, table[k]);
    if (at % 2) *out++ = table[from.codes[at++ / 2] & 15];
    detail::look_up(from.codes + at / 2, until - at, table, out);
    out += until - at;
    at = until;
  }
}

/// The codes of a block of n numbers, of which there are `block` in a whole one. Returns absmax as it is stored.
inline float encode(const float* x, int64_t n, int64_t block, Type type, uint8_t* codes) {
  const bool whole = n == block;
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = dynamic8::magnitude_bits(x[i]);
    most = magnitude > most ? magnitude : most;
  }
  float absmax;
  std::memcpy(&absmax, &most, sizeof absmax);
  const float* const bounds = detail::tables().bounds[type];
  constexpr int64_t at_once = 64;
  for (int64_t first = 0; first < n; first += at_once) {
    const int64_t end = first + at_once < n ? at_once : n - first;
    float t[at_once] = {};
    int32_t rank[at_once] = {};
    for (int64_t i = 0; i < end; ++i) t[i] = share(x[first + i], absmax, whole);
    for (int k = 0; k < 15; ++k)
      for (int64_t i = 0; i < at_once; ++i) rank[i] += t[i] > bounds[k] ? 1 : 0;
    for (int64_t i = 0; i < (end + 1) / 2; ++i)
      codes[(first / 2) + i] =
          static_cast<uint8_t>(detail::code_of_rank(rank[2 * i], type) << 4 | detail::code_of_rank(rank[2 * i + 1], type));
  }
  return kept_absmax(absmax, whole);
}

/// The codes of up to kNested absmax. Returns the largest magnitude of absmax − offset.
inline float encode_nested(const float* absmax, int64_t n, float offset, uint8_t* codes) {
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float magnitude = fabsf(absmax[i] - offset);
    largest = magnitude > largest ? magnitude : largest;
  }
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(nested_code(absmax[i] - offset, largest));
  return largest;
}

}  // namespace galley::four_bit
