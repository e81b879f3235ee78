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

namespace galley::sdk {

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

/// Counters, then words, in the lower halves.
struct Words {
  Lanes c0, c1, c2, c3;
};
inline Words philox(uint64_t key, Words x) {
  const Lanes zero = {};
  uint64_t k0 = key & 0xFFFFFFFFu, k1 = key >> 32;
  for (int round = 0; round < 10; ++round) {
    const Lanes a = multiply(x.c0, zero + 0xD2511F53u), b = multiply(x.c2, zero + 0xCD9E8D57u);
    x.c0 = (b >> 32) ^ x.c1 ^ (zero + k0);
    x.c2 = (a >> 32) ^ x.c3 ^ (zero + k1);
    x.c1 = b;
    x.c3 = a;
    k0 = (k0 + 0x9E3779B9u) & 0xFFFFFFFFu;
    k1 = (k1 + 0xBB67AE85u) & 0xFFFFFFFFu;
  }
  return x;
}

}  // namespace detail

/// The words of the blocks with counters first … first + 63, in order. Counters stay below 2³².
inline void philox_many(uint64_t key, uint64_t first, uint64_t counter_high, uint32_t (&words)[4 * philox_blocks]) {
  using detail::Lanes;
  uint64_t low[philox_blocks], high[philox_blocks];  // words 0 and 1, words 2 and 3 of a block
  for (int64_t j = 0; j < philox_blocks; j += detail::lanes_of_one) {
    const Lanes zero = {};
    const detail::Words x = detail::philox(key, {detail::first_numbers() + (first + static_cast<uint64_t>(j)), zero,
                                                 zero + (counter_high & 0xFFFFFFFFu), zero + (counter_high >> 32)});
    const Lanes word01 = (x.c0 & 0xFFFFFFFFu) | x.c1 << 32, word23 = (x.c2 & 0xFFFFFFFFu) | x.c3 << 32;
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

/// words[k][i]: word k of the block with counter `low` at the upper counter high + i, for 64 of them. Those stay below 2³² in their lower
/// half: galley_random_block() of 64 positions.
inline void philox_along(uint64_t key, uint64_t low, uint64_t high, uint32_t (&words)[4][philox_blocks]) {
  using detail::Lanes;
  for (int64_t i = 0; i < philox_blocks; i += detail::lanes_of_one) {
    const Lanes zero = {};
    const detail::Words x =
        detail::philox(key, {zero + (low & 0xFFFFFFFFu), zero + (low >> 32),
                             detail::first_numbers() + ((high & 0xFFFFFFFFu) + static_cast<uint64_t>(i)), zero + (high >> 32)});
    const Lanes each[4] = {x.c0, x.c1, x.c2, x.c3};
    for (int64_t k = 0; k < 4; ++k)
      for (int64_t n = 0; n < detail::lanes_of_one; ++n) words[k][i + n] = static_cast<uint32_t>(each[k][n]);
  }
}

#else

inline void philox_many(uint64_t key, uint64_t first, uint64_t counter_high, uint32_t (&words)[4 * philox_blocks]) {
  for (int64_t j = 0; j < philox_blocks; ++j) {
    const galley_philox_block b = galley_philox(key, first + static_cast<uint64_t>(j), counter_high);
    for (int64_t k = 0; k < 4; ++k) words[4 * j + k] = b.word[k];
  }
}

inline void philox_along(uint64_t key, uint64_t low, uint64_t high, uint32_t (&words)[4][philox_blocks]) {
  for (int64_t i = 0; i < philox_blocks; ++i) {
    const galley_philox_block b = galley_philox(key, low, high + static_cast<uint64_t>(i));
    for (int64_t k = 0; k < 4; ++k) words[k][i] = b.word[k];
  }
}

#endif

}  // namespace galley::sdk
