// Blocked attention by instructions that multiply pairs of BF16 numbers and add in F32 (AVX512-BF16): block.hpp's two products, and those
// of the gradient, with twice the operations a cycle. A word is a pair of BF16 numbers that come after each other in a sum, the first of
// them below. Keys, values, queries and their gradients are BF16 as they lie; probabilities and the gradients of scores are rounded to
// BF16, as on tensor cores. The instructions take numbers below the smallest normal one for 0.
//
// For processors whose target says that pairs are faster than F32's multiply-add, and that there are no tiles (cpu_bf16.cpp of linear).
#pragma once

#include <initializer_list>

#include "cpu/peaks.hpp"
#include "ops/attention/block.hpp"

#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4

#include <immintrin.h>

#define GALLEY_BF16_PAIRS __attribute__((target("avx512bf16")))

namespace galley::cpu::words {

/// Refuses a node one of whose `inputs` is not BF16, or whose heads have no whole number of words, and a target without these instructions,
/// or with tiles, beside which they are slow.
inline void check(const sdk::Node& node, const galley_target& target, std::initializer_list<uint32_t> inputs) {
  const double ratio = bf16_per_f32(target);
  if (ratio < least_of_pairs || ratio >= least_of_tiles) sdk::unsupported("the target's peak of bf16 does not ask for pairs");
  for (const uint32_t i : inputs)
    if (node.has(i) && node.in(i).dtype != GALLEY_BF16) sdk::unsupported("operands in BF16 only");
  if (models::attention_extents(node).D % 2) sdk::unsupported("an even head_dim only");
}

/// A(r, k) = data[r · row + k · step].
struct Strided {
  const uint32_t* data;
  int64_t row, step;
};

template <int R, int G>
GALLEY_BF16_PAIRS inline void corner(int64_t depth, Strided a, const uint32_t* b, int64_t ldb, float* c, int64_t ldc, Onto onto,
                                     float factor) {
  __m512 sum[R][G];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) sum[r][g] = _mm512_setzero_ps();
  for (int64_t k = 0; k < depth; ++k, b += ldb, a.data += a.step) {
    __m512i row[G];
    for (int g = 0; g < G; ++g) row[g] = _mm512_loadu_si512(b + g * tile::width);
    for (int r = 0; r < R; ++r) {
      const auto x = (__m512bh)_mm512_set1_epi32(static_cast<int>(a.data[r * a.row]));
      for (int g = 0; g < G; ++g) sum[r][g] = _mm512_dpbf16_ps(sum[r][g], x, (__m512bh)row[g]);
    }
  }
  const __m512 times = _mm512_set1_ps(factor);
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) {
      float* to = c + r * ldc + g * tile::width;
      _mm512_storeu_ps(to, onto == Onto::Add ? _mm512_fmadd_ps(sum[r][g], times, _mm512_loadu_ps(to)) : _mm512_mul_ps(sum[r][g], times));
    }
}

template <int G>
GALLEY_BF16_PAIRS inline void strip(int64_t rows, int64_t depth, Strided a, const uint32_t* b, int64_t ldb, float* c, int64_t ldc,
                                    Onto onto, float factor) {
  constexpr int most = 6;
  int64_t r = 0;
  for (; r + most <= rows; r += most) corner<most, G>(depth, {a.data + r * a.row, a.row, a.step}, b, ldb, c + r * ldc, ldc, onto, factor);
  const Strided rest{a.data + r * a.row, a.row, a.step};
  c += r * ldc;
  switch (rows - r) {
    case 1: return corner<1, G>(depth, rest, b, ldb, c, ldc, onto, factor);
    case 2: return corner<2, G>(depth, rest, b, ldb, c, ldc, onto, factor);
    case 3: return corner<3, G>(depth, rest, b, ldb, c, ldc, onto, factor);
    case 4: return corner<4, G>(depth, rest, b, ldb, c, ldc, onto, factor);
    case 5: return corner<5, G>(depth, rest, b, ldb, c, ldc, onto, factor);
    default: return;
  }
}

/// tile::product of words: C (rows × groups·16) = or += factor · A (rows × depth) · B (depth × groups·16), `depth` in words.
GALLEY_BF16_PAIRS inline void product(int64_t rows, int64_t groups, int64_t depth, Strided a, const uint32_t* b, int64_t ldb, float* c,
                                      int64_t ldc, Onto onto, float factor) {
  for (; groups >= 4; groups -= 4, b += 4 * tile::width, c += 4 * tile::width) strip<4>(rows, depth, a, b, ldb, c, ldc, onto, factor);
  switch (groups) {
    case 1: return strip<1>(rows, depth, a, b, ldb, c, ldc, onto, factor);
    case 2: return strip<2>(rows, depth, a, b, ldb, c, ldc, onto, factor);
    case 3: return strip<3>(rows, depth, a, b, ldb, c, ldc, onto, factor);
    default: return;
  }
}

/// Rows of BF16 numbers as words along a row; `row` in words.
struct Rows {
  const uint32_t* data;
  int64_t row;
};
inline Rows rows_of(const Numbers& from, int64_t row) { return {static_cast<const uint32_t*>(from.data), row / 2}; }

/// out[j][c] = factor · Σ_d rows[j][d] · columns[d][c], where a query of column c may see the key of row j; `columns` (D / 2, 64) words.
inline void scores(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, int64_t D, const Rows& rows, float factor,
                   const uint32_t* columns, float* out) {
  bounds.parts(key, keys, [&](int64_t j, int64_t n, int64_t g) {
    product(n, q.groups() - g, D / 2, {rows.data + j * rows.row, rows.row, 1}, columns + g * tile::width, side,
            out + j * side + g * tile::width, side, Onto::Write, factor);
  });
}

/// out[d][c] += Σ_j rows[j][d] · weights[j][c]; `rows` (keys / 2, W) and `weights` (keys / 2, 64) words along j, a last odd key beside a 0.
inline void combine(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, int64_t D, const uint32_t* rows, int64_t W,
                    const uint32_t* weights, float* out) {
  bounds.parts(key, keys, [&](int64_t j, int64_t n, int64_t g) {
    product(D, q.groups() - g, (n + 1) / 2, {rows + j / 2 * W, 1, W}, weights + j / 2 * side + g * tile::width, side, out + g * tile::width,
            side, Onto::Add, 1.0f);
  });
}

/// to[d][c] = the words of from[c], (D / 2, 64); columns without a query are 0.
inline void load_columns(const Queries& q, int64_t D, const Rows& from, uint32_t* to) {
  transpose(reinterpret_cast<const float*>(from.data), from.row, q.n, D / 2, reinterpret_cast<float*>(to), side);
  for (int64_t d = 0; d < D / 2; ++d)
    for (int64_t c = q.n; c < q.columns(); ++c) to[d * side + c] = 0;
}

/// Words along the n rows of `from`, (n / 2, W): rows 2i and 2i + 1 beside each other, D numbers and zeros after them, a last odd row
/// beside zeros.
inline void pair_rows(const Numbers& from, int64_t row, int64_t n, int64_t D, int64_t W, uint32_t* to) {
  alignas(64) static constexpr uint16_t order[2][32] = {
      {0, 32, 1, 33, 2, 34, 3, 35, 4, 36, 5, 37, 6, 38, 7, 39, 8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47},
      {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55, 24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63}};
  const __m512i low = _mm512_load_si512(order[0]), high = _mm512_load_si512(order[1]);
  const auto* x = static_cast<const uint16_t*>(from.data);
  for (int64_t i = 0; i < n; i += 2, x += 2 * row, to += W)
    for (int64_t d = 0; d < W; d += 32) {
      const int64_t left = std::max<int64_t>(D - d, 0);
      const __mmask32 some = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
      const __m512i a = _mm512_maskz_loadu_epi16(some, x + d), b = _mm512_maskz_loadu_epi16(i + 1 < n ? some : 0, x + row + d);
      _mm512_storeu_si512(to + d, _mm512_permutex2var_epi16(a, low, b));
      if (d + tile::width < W) _mm512_storeu_si512(to + d + tile::width, _mm512_permutex2var_epi16(a, high, b));
    }
}

/// from (n, 64) in F32, times `factor`, as words along the rows: (n / 2, 64), a last odd row beside zeros.
GALLEY_BF16_PAIRS inline void round_down(const float* from, int64_t n, int64_t columns, float factor, uint32_t* to) {
  alignas(64) static constexpr uint16_t order[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                     8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  const __m512i both = _mm512_load_si512(order);
  const __m512 times = _mm512_set1_ps(factor);
  for (int64_t j = 0; j < n; j += 2, from += 2 * side, to += side)
    for (int64_t c = 0; c < columns; c += tile::width) {
      const __m512 first = _mm512_mul_ps(_mm512_loadu_ps(from + c), times);
      const __m512 second = j + 1 < n ? _mm512_mul_ps(_mm512_loadu_ps(from + side + c), times) : _mm512_setzero_ps();
      _mm512_storeu_si512(to + c, _mm512_permutexvar_epi16(both, (__m512i)_mm512_cvtne2ps_pbh(second, first)));
    }
}

/// from (n, 64) in F32, times `factor`, as words along the columns: (n, 32).
GALLEY_BF16_PAIRS inline void round_across(const float* from, int64_t n, float factor, uint32_t* to) {
  const __m512 times = _mm512_set1_ps(factor);
  for (int64_t j = 0; j < n; ++j, from += side, to += side / 2)
    for (int64_t c = 0; c < side; c += 2 * tile::width)
      _mm512_storeu_si512(to + c / 2, (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(_mm512_loadu_ps(from + c + tile::width), times),
                                                                   _mm512_mul_ps(_mm512_loadu_ps(from + c), times)));
}

}  // namespace galley::cpu::words

#endif
