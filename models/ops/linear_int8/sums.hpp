// Sums of products of codes, in I32. W comes in panels: 64 outputs side by side, words of 4 bytes with k as their rows, so that a word of x
// meets 64 words of W. A word holds codes of consecutive k: four of 8 bits for processors that multiply these (vpdpbusd, which takes x
// without signs: 128 is added to x's codes, and 128 times the sums of W's are taken off after), two that were widened to 16 bit for all
// others (vpmaddwd). Exact, so either way has the same bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace galley::cpu::int8 {

inline constexpr int64_t panel = 64;   // outputs
inline constexpr int64_t depth = 512;  // of a panel: what is multiplied stays in the second-level cache

/// Codes of W (N, K), or (K, N) where `columns`.
struct Codes {
  const int8_t* codes;
  int64_t N, K;
  bool columns;
  int8_t at(int64_t n, int64_t k) const { return columns ? codes[k * N + n] : codes[n * K + k]; }
};

/// A word of `group` codes that lie `next` apart.
template <class Word, int64_t group>
uint32_t word_of(const int8_t* from, int64_t next) {
  uint32_t word = 0;
  for (int64_t j = 0; j < group; ++j)
    word |= static_cast<uint32_t>(static_cast<std::make_unsigned_t<Word>>(Word{from[j * next]}))
            << (8 * sizeof(Word) * static_cast<size_t>(j));
  return word;
}

/// Words of `group` codes each, made of Word: of outputs [n0, n0 + 64) and k in [k0, k1); 0 after the last ones.
template <class Word>
void make_panel(const Codes& w, int64_t n0, int64_t k0, int64_t k1, Word* __restrict to) {
  constexpr int64_t group = 4 / static_cast<int64_t>(sizeof(Word));
  const int64_t outputs = std::min(panel, w.N - n0), whole = (k1 - k0) / group, words = (k1 - k0 + group - 1) / group;
  if (outputs < panel || whole < words) std::fill_n(to, words * panel * group, Word{0});
  if (w.columns) {
    for (int64_t k = k0; k < k1; k += group) {
      const int8_t* const from = w.codes + k * w.N + n0;
      const int64_t there = std::min(group, k1 - k);
      Word* const at = to + (k - k0) * panel;
      if (there == group) {
        for (int64_t n = 0; n < outputs; ++n) {
          const uint32_t word = word_of<Word, group>(from + n, w.N);
          std::memcpy(at + n * group, &word, sizeof word);
        }
      } else {
        for (int64_t n = 0; n < outputs; ++n)
          for (int64_t j = 0; j < there; ++j) at[n * group + j] = from[j * w.N + n];
      }
    }
    return;
  }
  for (int64_t n = 0; n < outputs; ++n) {
    const int8_t* const from = w.codes + (n0 + n) * w.K + k0;
    Word* const at = to + n * group;
    for (int64_t i = 0; i < whole; ++i)
      for (int64_t j = 0; j < group; ++j) at[i * panel * group + j] = from[i * group + j];
    for (int64_t k = whole * group; k < k1 - k0; ++k) at[k / group * panel * group + k % group] = from[k];
  }
}

// ---- Ways to multiply -------------------------------------------------------------------------------------------------------------

/// Before a loop over sums in registers: a loop that is left of it would keep them in memory.
#define GALLEY_ALL_OF _Pragma("GCC unroll 8")

/// What sums are made of on every machine.
struct Plain {
  using X = int16_t;
  using W = int16_t;
  static constexpr int32_t offset = 0;
  static constexpr int64_t most_rows = 1;
  template <int64_t rows>
  static void add(const char* x, int64_t, const W* w, int64_t words, int32_t* sums) {
    for (int64_t i = 0; i < words; ++i) {
      int16_t pair[2];
      std::memcpy(pair, x + 4 * i, sizeof pair);
      for (int64_t n = 0; n < panel; ++n) sums[n] += pair[0] * w[2 * (i * panel + n)] + pair[1] * w[2 * (i * panel + n) + 1];
    }
  }
};

inline int word_at(const char* x) {
  int word;
  std::memcpy(&word, x, sizeof word);
  return word;
}

#if defined(__AVX512BW__)
struct Pairs512 {
  using X = int16_t;
  using W = int16_t;
  static constexpr int32_t offset = 0;
  static constexpr int64_t most_rows = 6;
  /// Adds to `rows` rows of 64 sums. `next`: bytes from one row of x to the next.
  template <int64_t rows>
  static void add(const char* x, int64_t next, const W* w, int64_t words, int32_t* sums) {
    __m512i sum[rows][4];
    GALLEY_ALL_OF
    for (int64_t r = 0; r < rows; ++r) {
      GALLEY_ALL_OF
      for (int64_t c = 0; c < 4; ++c) sum[r][c] = _mm512_load_si512(sums + r * panel + 16 * c);
    }
    for (int64_t i = 0; i < words; ++i) {
      __m512i right[4];
      GALLEY_ALL_OF
      for (int64_t c = 0; c < 4; ++c) right[c] = _mm512_load_si512(w + 2 * (i * panel + 16 * c));
      GALLEY_ALL_OF
      for (int64_t r = 0; r < rows; ++r) {
        const __m512i left = _mm512_set1_epi32(word_at(x + r * next + 4 * i));
        GALLEY_ALL_OF
        for (int64_t c = 0; c < 4; ++c) sum[r][c] = _mm512_add_epi32(sum[r][c], _mm512_madd_epi16(left, right[c]));
      }
    }
    GALLEY_ALL_OF
    for (int64_t r = 0; r < rows; ++r) {
      GALLEY_ALL_OF
      for (int64_t c = 0; c < 4; ++c) _mm512_store_si512(sums + r * panel + 16 * c, sum[r][c]);
    }
  }
};

struct Fours512 {
  using X = uint8_t;
  using W = int8_t;
  static constexpr int32_t offset = 128;
  static constexpr int64_t most_rows = 6;
  template <int64_t rows>
  __attribute__((target("avx512vnni"))) static void add(const char* x, int64_t next, const W* w, int64_t words, int32_t* sums) {
    __m512i sum[rows][4];
    GALLEY_ALL_OF
    for (int64_t r = 0; r < rows; ++r) {
      GALLEY_ALL_OF
      for (int64_t c = 0; c < 4; ++c) sum[r][c] = _mm512_load_si512(sums + r * panel + 16 * c);
    }
    for (int64_t i = 0; i < words; ++i) {
      __m512i right[4];
      GALLEY_ALL_OF
      for (int64_t c = 0; c < 4; ++c) right[c] = _mm512_load_si512(w + 4 * (i * panel + 16 * c));
      GALLEY_ALL_OF
      for (int64_t r = 0; r < rows; ++r) {
        const __m512i left = _mm512_set1_epi32(word_at(x + r * next + 4 * i));
        GALLEY_ALL_OF
        for (int64_t c = 0; c < 4; ++c) sum[r][c] = _mm512_dpbusd_epi32(sum[r][c], left, right[c]);
      }
    }
    GALLEY_ALL_OF
    for (int64_t r = 0; r < rows; ++r) {
      GALLEY_ALL_OF
      for (int64_t c = 0; c < 4; ++c) _mm512_store_si512(sums + r * panel + 16 * c, sum[r][c]);
    }
  }
};
#elif defined(__AVX2__)
struct Pairs256 {
  using X = int16_t;
  using W = int16_t;
  static constexpr int32_t offset = 0;
  static constexpr int64_t most_rows = 6;
  template <int64_t rows>
  static void add(const char* x, int64_t next, const W* w, int64_t words, int32_t* sums) {
    for (int64_t first = 0; first < panel; first += 16) {  // 12 sums, 2 of W, 1 of x
      __m256i sum[rows][2];
      GALLEY_ALL_OF
      for (int64_t r = 0; r < rows; ++r) {
        GALLEY_ALL_OF
        for (int64_t c = 0; c < 2; ++c) sum[r][c] = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums + r * panel + first + 8 * c));
      }
      for (int64_t i = 0; i < words; ++i) {
        __m256i right[2];
        GALLEY_ALL_OF
        for (int64_t c = 0; c < 2; ++c) right[c] = _mm256_load_si256(reinterpret_cast<const __m256i*>(w + 2 * (i * panel + first + 8 * c)));
        GALLEY_ALL_OF
        for (int64_t r = 0; r < rows; ++r) {
          const __m256i left = _mm256_set1_epi32(word_at(x + r * next + 4 * i));
          GALLEY_ALL_OF
          for (int64_t c = 0; c < 2; ++c) sum[r][c] = _mm256_add_epi32(sum[r][c], _mm256_madd_epi16(left, right[c]));
        }
      }
      GALLEY_ALL_OF
      for (int64_t r = 0; r < rows; ++r) {
        GALLEY_ALL_OF
        for (int64_t c = 0; c < 2; ++c) _mm256_store_si256(reinterpret_cast<__m256i*>(sums + r * panel + first + 8 * c), sum[r][c]);
      }
    }
  }
};
#endif

/// The same for any number of rows.
template <class Way>
void add_sums(const char* x, int64_t next, int64_t rows, const typename Way::W* w, int64_t words, int32_t* sums) {
  constexpr int64_t most = Way::most_rows;
  for (; rows >= most; rows -= most, x += most * next, sums += most * panel) Way::template add<most>(x, next, w, words, sums);
  if constexpr (most == 6) switch (rows) {
      case 5: return Way::template add<5>(x, next, w, words, sums);
      case 4: return Way::template add<4>(x, next, w, words, sums);
      case 3: return Way::template add<3>(x, next, w, words, sums);
      case 2: return Way::template add<2>(x, next, w, words, sums);
      case 1: return Way::template add<1>(x, next, w, words, sums);
      default: return;
    }
}

}  // namespace galley::cpu::int8
