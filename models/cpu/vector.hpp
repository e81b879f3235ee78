// What CPU kernels compute with: elementary functions that compilers vectorise in plain loops, sums in a fixed order, and work divided by
// shape alone.
//
// Bits. A loop's vector body and its tail run the same operations in the same order: multiply-adds are written out as `fma` (nothing is
// contracted after our back), there is no rounding-mode or library call, and sums have 32 lanes whatever the width of the machine's
// vectors. So a result depends neither on the number of threads nor on where a row begins, and libraries compiled for FMA machines of
// different width agree bit for bit.
//
// Accuracy, in units of the last place of F32 (measured by tests/models/vector_test.cpp against double): exp 1, log 1, tanh 2, sigmoid 2,
// erf 2.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "galley/cpp/plugin.hpp"

namespace galley::cpu {

/// a·b + c; rounded once where the machine can, always twice where it cannot.
inline float fma(float a, float b, float c) {
#ifdef __FMA__
  return __builtin_fmaf(a, b, c);
#else
  return a * b + c;
#endif
}

inline float absolute(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu); }
inline float with_sign(float magnitude, float sign) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(magnitude) & 0x7FFFFFFFu) | (std::bit_cast<uint32_t>(sign) & 0x80000000u));
}

namespace detail {

/// x = n·ln 2 + r with |r| ≤ ln 2 / 2. Adding 1.5·2²³ leaves n in the low bits of the sum, and so 2ⁿ's exponent after a shift.
struct Reduced {
  int32_t exponent;  ///< n · 2²³
  float r;
};
inline Reduced reduce(float x) {
  constexpr float shift = 12582912.0f;
  const float sum = fma(x, 1.44269504088896341f, shift);
  const float n = sum - shift;
  return {static_cast<int32_t>(std::bit_cast<uint32_t>(sum) << 23), fma(n, -1.42860682e-6f, fma(n, -0.693145752f, x))};
}

/// (e^r − 1) for |r| ≤ ln 2 / 2: Taylor to r⁷, the next term is 5e-9.
inline float exp_minus_one(float r) {
  float p = 1.0f / 5040;
  p = fma(p, r, 1.0f / 720);
  p = fma(p, r, 1.0f / 120);
  p = fma(p, r, 1.0f / 24);
  p = fma(p, r, 1.0f / 6);
  p = fma(p, r, 0.5f);
  return fma(p * r, r, r);
}

/// x · 2ⁿ where both are normal numbers.
inline float scale(float x, int32_t exponent) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) + static_cast<uint32_t>(exponent)); }

}  // namespace detail

/// e^x; 0 where it would be subnormal (below −87.33), infinity above 88.72. NaN stays NaN.
inline float exp(float x) {
  const detail::Reduced d = detail::reduce(x);
  float y = detail::scale(detail::exp_minus_one(d.r) + 1.0f, d.exponent);
  y = x < -87.3365448f ? 0.0f : y;
  return x <= 88.7228394f ? y : x + __builtin_inff();
}

/// ln x for x > 0 (subnormals included); −infinity at 0, NaN below.
inline float log(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const int32_t bits = std::bit_cast<int32_t>(scaled);
  const int32_t offset = bits - 0x3F3504F3;  // above 1/√2, so that the mantissa lands in [1/√2, √2)
  const float e = static_cast<float>(offset >> 23) - (tiny ? 23.0f : 0.0f);
  const float f = std::bit_cast<float>((offset & 0x007FFFFF) + 0x3F3504F3) - 1.0f;
  // ln(1 + f) = 2 atanh(s), s = f / (2 + f), and 2s = f − s·f: the large part stays exact (as in fdlibm).
  const float s = f / (2.0f + f), z = s * s;
  float p = 2.0f / 11;
  p = fma(p, z, 2.0f / 9);
  p = fma(p, z, 2.0f / 7);
  p = fma(p, z, 2.0f / 5);
  p = fma(p, z, 2.0f / 3);
  const float half_square = 0.5f * f * f;
  const float tail = fma(s, fma(p, z, half_square), e * 1.42860682e-6f);
  float y = e * 0.693145752f + (f - (half_square - tail));
  y = x > 3.40282347e38f ? x : y;
  y = x == 0.0f ? -__builtin_inff() : y;
  return x >= 0.0f ? y : __builtin_nanf("");
}

/// tanh x = (e^2x − 1) / (e^2x + 1), without cancellation near 0.
inline float tanh(float x) {
  float magnitude = absolute(x);
  magnitude = magnitude > 10.0f ? 10.0f : magnitude;
  const detail::Reduced d = detail::reduce(2.0f * magnitude);
  const float power = detail::scale(1.0f, d.exponent);
  const float m = fma(power, detail::exp_minus_one(d.r), power - 1.0f);
  return with_sign(m / (m + 2.0f), x);
}

/// 1 / (1 + e^−x).
inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }

/// x · sigmoid(x), and its derivative.
inline float silu(float x) { return x / (1.0f + exp(-x)); }
inline float silu_slope(float x) {
  const float s = sigmoid(x);
  return fma(x * s, 1.0f - s, s);
}

/// The error function. Below 1 an odd polynomial, above it 1 − e^−P(|x|); both interpolate erf and −ln erfc at Chebyshev's points.
inline float erf(float x) {
  const float t = absolute(x), z = x * x;
  float small = 7.87587505e-05f;
  small = fma(small, z, -8.01686428e-04f);
  small = fma(small, z, 5.18908742e-03f);
  small = fma(small, z, -2.68542120e-02f);
  small = fma(small, z, 1.12835947e-01f);
  small = fma(small, z, -3.76126267e-01f);
  small = fma(small, z, 1.28379166e-01f);
  small = fma(small, x, x);
  const float u = t > 4.0f ? 4.0f : t;
  float p = -1.64267897e-06f;
  p = fma(p, u, 4.61647852e-05f);
  p = fma(p, u, -5.97677275e-04f);
  p = fma(p, u, 4.76350966e-03f);
  p = fma(p, u, -2.64316433e-02f);
  p = fma(p, u, 1.10097243e-01f);
  p = fma(p, u, 6.31809550e-01f);
  p = fma(p, u, 1.13024188e+00f);
  p = fma(p, u, -3.21866258e-04f);
  const float large = with_sign(1.0f - exp(-p), x);
  return t < 1.0f ? small : large;
}

// ---- Sums in a fixed order ---------------------------------------------------------------------------------------------------

inline constexpr int64_t lanes = 32;

/// The sum of the lanes: halves are added until one is left.
template <class T>
inline T fold(T* lane) {
  for (int64_t width = lanes / 2; width; width /= 2)
    for (int64_t k = 0; k < width; ++k) lane[k] += lane[k + width];
  return lane[0];
}

/// A sum whose terms may come in several runs: all but the last one have a multiple of 32 terms, so that a term's lane depends on its
/// place alone. T is float or double.
template <class T = float>
class LaneSum {
 public:
  /// Adds term(i) for i in [0, n): lane i mod 32 adds its terms in order.
  template <class Term>
  void add(int64_t n, const Term& term) {
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int64_t k = 0; k < lanes; ++k) lane_[k] += static_cast<T>(term(i + k));
    for (int64_t k = 0; i < n; ++i, ++k) lane_[k] += static_cast<T>(term(i));
  }
  /// Adds to two sums over the same elements, read once.
  template <class First, class Second>
  static void add_both(LaneSum& a, LaneSum& b, int64_t n, const First& first, const Second& second) {
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes)
      for (int64_t k = 0; k < lanes; ++k) {
        a.lane_[k] += first(i + k);
        b.lane_[k] += second(i + k);
      }
    for (int64_t k = 0; i < n; ++i, ++k) {
      a.lane_[k] += first(i);
      b.lane_[k] += second(i);
    }
  }
  /// The lanes, folded; once, at the end.
  T total() { return fold(lane_); }

 private:
  alignas(64) T lane_[lanes] = {};
};

/// Σ term(i) for i in [0, n).
template <class T = float, class Term>
inline T sum(int64_t n, const Term& term) {
  LaneSum<T> of;
  of.add(n, term);
  return of.total();
}

/// The largest of n > 0 numbers. A NaN may be passed over.
inline float largest(const float* x, int64_t n) {
  alignas(64) float lane[lanes];
  for (float& value : lane) value = x[0];
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int64_t k = 0; k < lanes; ++k) lane[k] = x[i + k] > lane[k] ? x[i + k] : lane[k];
  for (int64_t k = 0; i < n; ++i, ++k) lane[k] = x[i] > lane[k] ? x[i] : lane[k];
  for (int64_t width = lanes / 2; width; width /= 2)
    for (int64_t k = 0; k < width; ++k) lane[k] = lane[k] > lane[k + width] ? lane[k] : lane[k + width];
  return lane[0];
}

// ---- Work divided by shape -----------------------------------------------------------------------------------------------------

inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// Elements of a block of element-wise work: a few operands of it fit the second-level cache.
inline constexpr int64_t block_elements = 16384;

/// body(first, last) over [0, n) in blocks of `size`.
template <class Body>
inline void in_blocks(int64_t n, int64_t size, const Body& body) {
  sdk::parallel(divide_up(n, size), [&](int64_t block) {
    const int64_t first = block * size, last = first + size < n ? first + size : n;
    body(first, last);
  });
}

/// body(first, last) over the elements [0, n).
template <class Body>
inline void over_elements(int64_t n, const Body& body) {
  in_blocks(n, block_elements, body);
}

/// body(row) for rows of `columns` elements, as many rows a block as make up a block of elements.
template <class Body>
inline void over_rows(int64_t rows, int64_t columns, const Body& body) {
  const int64_t size = columns >= block_elements ? 1 : block_elements / (columns ? columns : 1);
  in_blocks(rows, size, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) body(row);
  });
}

/// Before a loop whose iterations touch different elements: the operands may be the same buffer (an output that takes over an input),
/// which the compiler would otherwise meet with a scalar copy of the loop.
#define GALLEY_INDEPENDENT _Pragma("GCC ivdep")

/// y = value, or y += value: how a kernel writes an output that accumulates.
template <class Add>
inline void put(Add, float& y, float value) {
  if constexpr (Add::value) y += value;
  else y = value;
}

/// body(std::true_type) when the output accumulates, else body(std::false_type).
template <class Body>
inline void by_access(bool accumulates, const Body& body) {
  if (accumulates) body(std::true_type());
  else body(std::false_type());
}

/// The operands that are there and hold numbers hold them as F32.
inline bool all_f32(const sdk::Node& node) {
  const auto fits = [](const galley_operand* t) {
    return !t || t->dtype == GALLEY_F32 || t->dtype == GALLEY_I32 || t->dtype == GALLEY_I64;
  };
  for (uint32_t i = 0; i < node.view()->n_inputs; ++i)
    if (!fits(node.view()->inputs[i])) return false;
  for (uint32_t i = 0; i < node.view()->n_outputs; ++i)
    if (!fits(node.view()->outputs[i])) return false;
  return true;
}

}  // namespace galley::cpu
