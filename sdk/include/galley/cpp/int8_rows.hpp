// The format "int8-rows": a matrix as codes of 8 bits with one scale for each row (Dettmers, Lewis, Belkada, Zettlemoyer, "LLM.int8():
// 8-bit matrix multiplication for transformers at scale", 2022, arXiv:2208.07339, vector-wise quantization; codes and scales are those of
// bitsandbytes, int8_vectorwise_quant, which takes numbers in F16).
//
//     scale = max |x| over the row      code = x · 127 / scale, rounded to the nearest integer, ties to even      x = code · scale / 127
//
// A row is an output of the linear layer. Option "columns" = 1: a scale for each column, for weights that are stored (K, N). Numbers are
// rounded to F16 before they are coded, as bitsandbytes does.
//
// Components: codes, I8, of the tensor's shape; scales, F32, one for each row or column. In files they are X.weight and X.SCB.
#pragma once

#include <cstdint>
#include <cstring>

#include "galley/cpp/anywhere.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/node.hpp"

namespace galley::sdk::int8_rows {

inline constexpr const char* kName = "int8-rows";
inline constexpr const char* kScaleSuffix = ".SCB";
inline constexpr float kMost = 127;
/// The largest number of F16. A weight beyond it is stored as if it were this one.
inline constexpr float kLargest = 65504;

/// By which numbers are multiplied before they are rounded; 0 where the row has no magnitude, or none that is a number. As PyTorch divides
/// 127 by a tensor: in two roundings, which decide how ties are rounded.
GALLEY_ANYWHERE float inverse(float scale) { return scale > 0 && scale <= kLargest ? kMost * (1.0f / scale) : 0.0f; }

/// The code of a number. NaN becomes 0: the row's scale tells of it. Adding 1.5·2²³ leaves no places after the point.
GALLEY_ANYWHERE int8_t code(float x, float inverse_scale) {
  const float scaled = x * inverse_scale;
  const float rounded = (scaled + 12582912.0f) - 12582912.0f;
  return static_cast<int8_t>(rounded == rounded ? static_cast<int>(rounded) : 0);
}

/// What a code of 1 stands for.
GALLEY_ANYWHERE float unit(float scale) { return scale * (1.0f / kMost); }
GALLEY_ANYWHERE float value(int code, float unit_of_scale) { return static_cast<float>(code) * unit_of_scale; }

/// Magnitudes as integers, in the same order: the largest of them is the row's scale, which is infinite or NaN where a number is.
GALLEY_ANYWHERE uint32_t magnitude_bits(float x) {
  uint32_t out;
  memcpy(&out, &x, sizeof out);
  return out & 0x7FFFFFFFu;
}
GALLEY_ANYWHERE float magnitude(uint32_t bits) {
  float out;
  memcpy(&out, &bits, sizeof out);
  return out;
}
/// A weight before it is rounded to F16.
GALLEY_ANYWHERE float within(float x) { return x > kLargest ? kLargest : x < -kLargest ? -kLargest : x; }

/// x as it is after a way through F16, on the CPU.
inline float in_f16(float x) {
  F16 y;
  from_float(x, y);
  return to_float(y);
}

/// Codes and scales of a matrix, and how the scales lie.
struct Coded {
  Coded() = default;
  /// Of an operand that a kernel with GALLEY_KERNEL_FORMATS gets.
  explicit Coded(const galley_operand& t)
      : codes(static_cast<const int8_t*>(t.components[0]->data)),
        scales(static_cast<const float*>(t.components[1]->data)),
        row(galley_operand_columns(&t)),
        columns(option(t, "columns", 0) != 0) {}
  static bool holds(const galley_operand& t) { return t.format && galley_same_text(t.format, kName) && t.n_components == 2; }

  const int8_t* codes = nullptr;
  const float* scales = nullptr;
  int64_t row = 1;       ///< numbers of a row
  bool columns = false;  ///< a scale for each column
};

/// n numbers from the one with index `at` on, in T: float, Bf16 or F16.
template <class T>
void decode(const Coded& from, int64_t at, int64_t n, T* to) {
  for (int64_t r = at / from.row, c = at % from.row; n > 0; ++r, c = 0) {
    const int64_t size = n < from.row - c ? n : from.row - c;
    const int8_t* const codes = from.codes + r * from.row + c;
    if (from.columns) {
      const float* const scales = from.scales + c;
      for (int64_t i = 0; i < size; ++i) from_float(value(codes[i], unit(scales[i])), to[i]);
    } else {
      const float of_row = unit(from.scales[r]);
      for (int64_t i = 0; i < size; ++i) from_float(value(codes[i], of_row), to[i]);
    }
    n -= size;
    to += size;
  }
}

}  // namespace galley::sdk::int8_rows
