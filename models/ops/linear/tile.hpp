// Products of small matrices held in cache: C[r][i] = Σ_k A(r, k) · B[k][i], where A is read one number at a time, from wherever it lies,
// and B and C in rows of vectors. Nothing of A needs to be packed or transposed for that: a tile of C stays in registers while k runs, and
// each number of A is spread over a vector. Blocked attention is five such products, the general matrix product is one after packing.
//
// Bits. Every element is one chain of fused multiply-adds from 0 in the order of k, whatever tile it falls into; then what C held is added
// to it.
//
// Measured on one thread of a Zen 4 core (512-bit vectors), 64 × 64 × 64 in cache: .92 of the FMA peak, .88 with A strided by 3 KiB.
#pragma once

#include <cstdint>

#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif

namespace galley::cpu::tile {

/// Floats of a lane group: rows of B and C are whole numbers of them, on every machine.
inline constexpr int64_t width = 16;

#if defined(__AVX512F__)
struct Lanes {
  __m512 v;
  static Lanes zero() { return {_mm512_setzero_ps()}; }
  static Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
};
struct Number {
  __m512 v;
  explicit Number(float x) : v(_mm512_set1_ps(x)) {}
};
inline Lanes fma(const Number& a, const Lanes& b, const Lanes& c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline Lanes add(const Lanes& a, const Lanes& b) { return {_mm512_add_ps(a.v, b.v)}; }
inline constexpr int most_groups = 4, most_rows = 6;  // 24 sums, 4 of B, 1 of A: 29 of 32 registers
#elif defined(__AVX2__) && defined(__FMA__)
struct Lanes {
  __m256 low, high;
  static Lanes zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  void store(float* p) const {
    _mm256_storeu_ps(p, low);
    _mm256_storeu_ps(p + 8, high);
  }
};
struct Number {
  __m256 v;
  explicit Number(float x) : v(_mm256_set1_ps(x)) {}
};
inline Lanes fma(const Number& a, const Lanes& b, const Lanes& c) {
  return {_mm256_fmadd_ps(a.v, b.low, c.low), _mm256_fmadd_ps(a.v, b.high, c.high)};
}
inline Lanes add(const Lanes& a, const Lanes& b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
inline constexpr int most_groups = 1, most_rows = 6;  // 12 sums, 2 of B, 1 of A: 15 of 16 registers
#else
struct Lanes {
  float v[width];
  static Lanes zero() { return {}; }
  static Lanes load(const float* p) {
    Lanes out;
    for (int64_t i = 0; i < width; ++i) out.v[i] = p[i];
    return out;
  }
  void store(float* p) const {
    for (int64_t i = 0; i < width; ++i) p[i] = v[i];
  }
};
struct Number {
  float v;
  explicit Number(float x) : v(x) {}
};
inline Lanes fma(const Number& a, const Lanes& b, const Lanes& c) {
  Lanes out;
  for (int64_t i = 0; i < width; ++i) out.v[i] = a.v * b.v[i] + c.v[i];
  return out;
}
inline Lanes add(const Lanes& a, const Lanes& b) {
  Lanes out;
  for (int64_t i = 0; i < width; ++i) out.v[i] = a.v[i] + b.v[i];
  return out;
}
inline constexpr int most_groups = 1, most_rows = 4;
#endif

/// A(r, k) = data[r · row + k · step].
struct Strided {
  const float* data;
  int64_t row, step;
};

/// What is done with what C held before.
enum class Onto { Write, Add };

// `base`, in rows as those of C: what the product is added to; null: nothing.
template <int R, int G>
inline void corner(int64_t depth, Strided a, const float* b, int64_t ldb, float* c, int64_t ldc, const float* base) {
  Lanes sum[R][G];
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) {
      sum[r][g] = Lanes::zero();
      __builtin_prefetch((base ? base : c) + r * ldc + g * width);  // it comes while k runs
    }
  for (int64_t k = 0; k < depth; ++k, b += ldb, a.data += a.step) {
    Lanes row[G];
    for (int g = 0; g < G; ++g) row[g] = Lanes::load(b + g * width);
    for (int r = 0; r < R; ++r) {
      const Number x(a.data[r * a.row]);
      for (int g = 0; g < G; ++g) sum[r][g] = fma(x, row[g], sum[r][g]);
    }
  }
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) {
      const int64_t at = r * ldc + g * width;
      if (base) sum[r][g] = add(Lanes::load(base + at), sum[r][g]);
      sum[r][g].store(c + at);
    }
}

template <int G>
inline void strip(int64_t rows, int64_t depth, Strided a, const float* b, int64_t ldb, float* c, int64_t ldc, const float* base) {
  int64_t r = 0;
  for (; r + most_rows <= rows; r += most_rows)
    corner<most_rows, G>(depth, {a.data + r * a.row, a.row, a.step}, b, ldb, c + r * ldc, ldc, base ? base + r * ldc : nullptr);
  const Strided rest{a.data + r * a.row, a.row, a.step};
  c += r * ldc;
  if (base) base += r * ldc;
  switch (rows - r) {
    case 1: return corner<1, G>(depth, rest, b, ldb, c, ldc, base);
    case 2: return corner<2, G>(depth, rest, b, ldb, c, ldc, base);
    case 3: return corner<3, G>(depth, rest, b, ldb, c, ldc, base);
    case 4: return corner<4, G>(depth, rest, b, ldb, c, ldc, base);
    case 5: return corner<5, G>(depth, rest, b, ldb, c, ldc, base);
    default: return;
  }
}

/// C (rows × groups·16) from A (rows × depth) and B (depth × groups·16), added to `base` unless that is null; ldb is the distance of B's
/// rows, ldc that of C's and base's, which may be the same memory.
inline void product(int64_t rows, int64_t groups, int64_t depth, Strided a, const float* b, int64_t ldb, float* c, int64_t ldc,
                    const float* base) {
  constexpr int64_t run = most_groups * width;
  for (; groups >= most_groups; groups -= most_groups, b += run, c += run, base = base ? base + run : nullptr)
    strip<most_groups>(rows, depth, a, b, ldb, c, ldc, base);
  if constexpr (most_groups > 1) {
    switch (groups) {
      case 1: return strip<1>(rows, depth, a, b, ldb, c, ldc, base);
      case 2: return strip<2>(rows, depth, a, b, ldb, c, ldc, base);
      case 3: return strip<3>(rows, depth, a, b, ldb, c, ldc, base);
      default: return;
    }
  }
}
inline void product(int64_t rows, int64_t groups, int64_t depth, Strided a, const float* b, int64_t ldb, float* c, int64_t ldc, Onto onto) {
  product(rows, groups, depth, a, b, ldb, c, ldc, onto == Onto::Add ? c : nullptr);
}

}  // namespace galley::cpu::tile
