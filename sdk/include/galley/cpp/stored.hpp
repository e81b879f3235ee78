// Operands on the CPU as numbers in F32, whatever they are stored in: F32, BF16, F16, or a format that has a codec. A piece at a time,
// which stays in the cache while it is worked on.
#pragma once

#include "galley/cpp/coded.hpp"

namespace galley::sdk {

/// Numbers that are read and written at a time: they stay in the first-level cache.
inline constexpr int64_t kStoredTile = 1024;

class Stored {
 public:
  Stored() = default;  ///< of nothing
  explicit Stored(const galley_operand& operand) : data_(operand.data), dtype_(operand.dtype), coded_(operand) {}

  /// Whether numbers are in F32, BF16 or F16.
  static bool takes(const galley_operand& operand) {
    return !operand.format && (operand.dtype == GALLEY_F32 || operand.dtype == GALLEY_BF16 || operand.dtype == GALLEY_F16);
  }
  /// The same or in a format that can be read, and, where the operand is written, be written by tiles.
  static bool takes_coded(const galley_operand& operand) {
    if (!operand.format) return takes(operand);
    int64_t unit = 0;
    return Coded::reads(operand, &unit) && (!(operand.access & GALLEY_WRITE) || (unit > 0 && kStoredTile % unit == 0));
  }

  explicit operator bool() const { return data_ || coded_; }
  /// Whether numbers are F32 in memory, so that `load` gives their address.
  bool in_place() const { return dtype_ == GALLEY_F32 && !coded_; }

  /// Numbers [begin, begin + n) in F32: where they are, or in `room`.
  float* load(int64_t begin, int64_t n, float* room) const {
    if (coded_) coded_.decode(begin, n, room);
    else if (dtype_ == GALLEY_BF16) widened(static_cast<const Bf16*>(data_) + begin, n, room);
    else if (dtype_ == GALLEY_F16) widened(static_cast<const F16*>(data_) + begin, n, room);
    else return static_cast<float*>(data_) + begin;
    return room;
  }
  /// The way back, for numbers that are not `in_place`.
  void store(const float* numbers, int64_t n, int64_t begin) const {
    if (coded_) coded_.encode(begin, n, numbers);
    else if (dtype_ == GALLEY_BF16) rounded(numbers, n, static_cast<Bf16*>(data_) + begin);
    else if (dtype_ == GALLEY_F16) rounded(numbers, n, static_cast<F16*>(data_) + begin);
  }

 private:
  template <class From>
  static void widened(const From* __restrict from, int64_t n, float* __restrict to) {
    for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
  }
  template <class To>
  static void rounded(const float* __restrict from, int64_t n, To* __restrict to) {
    for (int64_t i = 0; i < n; ++i) from_float(from[i], to[i]);
  }

  void* data_ = nullptr;
  uint32_t dtype_ = GALLEY_F32;
  Coded coded_;
};

}  // namespace galley::sdk
