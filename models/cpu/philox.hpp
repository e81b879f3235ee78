// Philox (galley/philox.h) for many blocks at once. The compiler does not find the instruction that multiplies two 32-bit numbers into 64
// bits in each lane, so it is named here; the rest are vectors of 64-bit lanes whose upper halves hold whatever they hold, since neither
// that product nor the result looks at them.
#pragma once

#include <cstdint>
#include <cstring>

#include "galley/philox.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace galley::cpu {

inline constexpr int64_t philox_blocks = 64;

#if defined(__AVX2__)

namespace detail {

#if defined(__AVX512F__)
typedef uint64_t Lanes __attribute__((vector_size(64)));
// With a mask of all lanes: the plain one of GCC 12 warns of a variable of its own.
inline Lanes multiply(Lanes a, Lanes b) { return (Lanes)_mm512_maskz_mul_epu32(0xFF, (__m512i)a, (__m512i)b); }
inline Lanes first_numbers() { return Lanes{0, 1, 2, 3, 4, 5, 6, 7}; }
#else
typedef uint64_t Lanes __attribute__((vector_size(32)));
inline Lanes multiply(Lanes a, Lanes b) { return (Lanes)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
inline Lanes first_numbers() { return Lanes{0, 1, 2, 3}; }
#endif
inline constexpr int64_t lanes_of_one = sizeof(Lanes) / 8;

}  // namespace detail

/// The words of the blocks with counters first … first + 63, in order. Counters stay below 2³².
inline void philox_many(uint64_t key, uint64_t first, uint64_t counter_high, uint32_t (&words)[4 * philox_blocks]) {
  using detail::Lanes;
  uint64_t low[philox_blocks], high[philox_blocks];  // words 0 and 1, words 2 and 3 of a block
  for (int64_t j = 0; j < philox_blocks; j += detail::lanes_of_one) {
    const Lanes zero = {};
    Lanes c0 = detail::first_numbers() + (first + static_cast<uint64_t>(j)), c1 = zero, c2 = zero + (counter_high & 0xFFFFFFFFu),
          c3 = zero + (counter_high >> 32);
    uint64_t k0 = key & 0xFFFFFFFFu, k1 = key >> 32;
    for (int round = 0; round < 10; ++round) {
      const Lanes a = detail::multiply(c0, zero + 0xD2511F53u), b = detail::multiply(c2, zero + 0xCD9E8D57u);
      c0 = (b >> 32) ^ c1 ^ (zero + k0);
      c2 = (a >> 32) ^ c3 ^ (zero + k1);
      c1 = b;
      c3 = a;
      k0 = (k0 + 0x9E3779B9u) & 0xFFFFFFFFu;
      k1 = (k1 + 0xBB67AE85u) & 0xFFFFFFFFu;
    }
    const Lanes word01 = (c0 & 0xFFFFFFFFu) | c1 << 32, word23 = (c2 & 0xFFFFFFFFu) | c3 << 32;
    std::memcpy(low + j, &word01, sizeof word01);
    std::memcpy(high + j, &word23, sizeof word23);
  }
  for (int64_t j = 0; j < philox_blocks; ++j) {
    words[4 * j] = static_cast<uint32_t>(low[j]);
    words[4 * j + 1] = static_cast<uint32_t>(low[j] >> 32);
    words[4 * j + 2] = static_cast<uint32_t>(high[j]);
    words[4 * j + 3] = static_cast<uint32_t>(high[j] >> 32);
  }
}

#else

inline void philox_many(uint64_t key, uint64_t first, uint64_t counter_high, uint32_t (&words)[4 * philox_blocks]) {
  for (int64_t j = 0; j < philox_blocks; ++j) {
    const galley_philox_block b = galley_philox(key, first + static_cast<uint64_t>(j), counter_high);
    for (int64_t k = 0; k < 4; ++k) words[4 * j + k] = b.word[k];
  }
}

#endif

}  // namespace galley::cpu
