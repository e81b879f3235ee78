// The format "dynamic8": numbers as 8-bit codes of a dynamic code book, block by block (Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit
// optimizers via block-wise quantization", ICLR 2022, arXiv:2110.02861; the code books are those of bitsandbytes, create_dynamic_map).
//
// 256 numbers in a row share the largest magnitude among them, absmax; a number is absmax times the entry nearest to x / absmax. An entry
// that is not 0 or 1 is 10^(d − 6) (.1 + .9 (k + ½) / N) in one of seven decades d, of N = 2ᵈ entries with both signs (`is_signed`), or
// 2ᵈ⁺¹ of numbers that are never negative. Entries are numbered in order of their values. Unlike bitsandbytes, where there are no signs, a
// number above 0 is not stored as 0: a mean of squares that vanishes while the mean does not would make a step of any size.
//
// Components: codes, U8, of the tensor's shape; absmax, F32, one for each block. Option: "signed", 1 or 0.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "galley/cpp/anywhere.hpp"

namespace galley::sdk::dynamic8 {

inline constexpr const char* kName = "dynamic8";
inline constexpr int64_t kBlock = 256;  // numbers

GALLEY_ANYWHERE int64_t blocks(int64_t numbers) { return (numbers + kBlock - 1) / kBlock; }

namespace detail {

/// 10^(d − 6), without an array: a GPU would have it in local memory.
GALLEY_ANYWHERE float power(int d) {
  return d == 0 ? 1e-6f : d == 1 ? 1e-5f : d == 2 ? 1e-4f : d == 3 ? 1e-3f : d == 4 ? 1e-2f : d == 5 ? 1e-1f : 1.0f;
}

/// Where the i-th of n equal parts of [.1, 1] begins, as PyTorch's linspace has it: counted from the nearer end, rounded once.
GALLEY_ANYWHERE float part(int i, int n) {
  const float each = (1.0f - 0.1f) / static_cast<float>(n);
  return 2 * i < n + 1 ? fmaf(each, static_cast<float>(i), 0.1f) : fmaf(-each, static_cast<float>(n - i), 1.0f);
}

/// The magnitude of an entry, by its rank among those of its sign: 0 for 0. With the bits of bitsandbytes.
GALLEY_ANYWHERE float magnitude(int rank, bool is_signed) {
  const int ones = is_signed ? 128 : 255;  // the rank of 1
  if (rank == 0) return 0;
  if (rank >= ones) return 1;
  const int at = is_signed ? rank : rank + 1;  // N + k: decades follow each other as those of binary numbers do
  int decade = 0, n = is_signed ? 1 : 2;
  while (at >= 2 * n) {
    n *= 2;
    ++decade;
  }
  return power(decade) * ((part(at - n, n) + part(at - n + 1, n)) / 2);
}

/// The rank of the entry nearest to t, 0 ≤ t.
template <bool is_signed>
GALLEY_ANYWHERE int rank_of(float t) {
  constexpr int first = is_signed ? 1 : 2;  // entries of the lowest decade
  // Halfway between the highest entry below a decade and its lowest; of the last: between all decades and 1.
  constexpr float edge[8] = {is_signed ? 2.75e-7f : 1.625e-7f,
                             static_cast<float>(1e-6 * (1 + 1.8 / (2 * first))),
                             static_cast<float>(1e-5 * (1 + 1.8 / (4 * first))),
                             static_cast<float>(1e-4 * (1 + 1.8 / (8 * first))),
                             static_cast<float>(1e-3 * (1 + 1.8 / (16 * first))),
                             static_cast<float>(1e-2 * (1 + 1.8 / (32 * first))),
                             static_cast<float>(1e-1 * (1 + 1.8 / (64 * first))),
                             static_cast<float>(1 - 0.225 / (64 * first))};
  constexpr float inverse_power[7] = {1e6f, 1e5f, 1e4f, 1e3f, 1e2f, 1e1f, 1};
  int n = first;
  float scale = inverse_power[0] * static_cast<float>(first / 0.9);
#if defined(__CUDACC__)
#pragma unroll
#endif
  for (int d = 1; d < 7; ++d) {
    const bool above = t > edge[d];
    n = above ? first << d : n;
    scale = above ? inverse_power[d] * static_cast<float>((first << d) / 0.9) : scale;
  }
  int k = static_cast<int>(t * scale - static_cast<float>(n) * static_cast<float>(0.1 / 0.9));
  k = k < n ? k : n - 1;
  int rank = is_signed ? n + k : n + k - 1;
  rank = t > edge[7] ? (is_signed ? 128 : 255) : rank;
  return t > edge[0] ? rank : 0;
}

GALLEY_ANYWHERE uint32_t bits(float x) {
  uint32_t out;
  memcpy(&out, &x, sizeof out);
  return out;
}

}  // namespace detail

/// An entry of the code book.
GALLEY_ANYWHERE float value(int code, bool is_signed) {
  if (!is_signed) return detail::magnitude(code, false);
  return code < 127 ? -detail::magnitude(127 - code, true) : detail::magnitude(code - 127, true);
}

/// Magnitudes as integers, in the same order: the largest of them is absmax.
GALLEY_ANYWHERE uint32_t magnitude_bits(float x) { return detail::bits(x) & 0x7FFFFFFFu; }

/// By which numbers are multiplied before they are coded; 0 for absmax = 0, and below what has an inverse.
GALLEY_ANYWHERE float inverse(float absmax) { return absmax >= 1.17549435e-38f ? 1.0f / absmax : 0.0f; }

template <bool is_signed>
GALLEY_ANYWHERE uint8_t code(float x, float inverse_absmax) {
  const float t = x * inverse_absmax;
  if constexpr (is_signed) {
    const int rank = detail::rank_of<true>(t < 0 ? -t : t);
    return static_cast<uint8_t>(t < 0 ? (rank < 127 ? 127 - rank : 0) : 127 + rank);
  } else {
    const int rank = detail::rank_of<false>(t), least = x > 0 ? 1 : 0;
    return static_cast<uint8_t>(rank > least ? rank : least);
  }
}

/// Code books for the CPU.
struct Books {
  float with_signs[256], without[256];
  Books() {
    for (int i = 0; i < 256; ++i) {
      with_signs[i] = value(i, true);
      without[i] = value(i, false);
    }
  }
};
inline const float* book(bool is_signed) {
  static const Books books;
  return is_signed ? books.with_signs : books.without;
}

}  // namespace galley::sdk::dynamic8
