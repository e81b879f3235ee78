// x as linear_int8 multiplies it, on the processor: which columns are outliers, and codes and scales of rows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cpu/lanes.hpp"
#include "cpu/number.hpp"
#include "ops/linear_int8/outlier.hpp"

namespace galley::cpu::int8 {

namespace int8_rows = sdk::int8_rows;

inline int64_t round_up(int64_t n, int64_t to) { return divide_up(n, to) * to; }

/// Where the parts of a workspace lie: each on a cache line of its own.
class Room {
 public:
  explicit Room(void* begin) : begin_(round_up(reinterpret_cast<intptr_t>(begin), 64)) {}
  template <class T>
  T* take(int64_t count) {
    T* const out = reinterpret_cast<T*>(begin_ + used_);
    used_ += round_up(count * static_cast<int64_t>(sizeof(T)), 64);
    return out;
  }
  /// What has been taken, wherever the workspace will lie.
  int64_t bytes() const { return used_ + 64; }

 private:
  int64_t begin_, used_ = 0;
};

/// x (R, K) of a node.
struct Rows {
  Rows(const sdk::Node& node) : x(node, 0), R(sdk::rows(node.in(0))), K(sdk::columns(node.in(0))) {
    threshold = static_cast<float>(node.f("threshold", 6));
  }

  /// n ≤ run_length numbers of a row, from column k on, as they are after F16.
  void in_f16(int64_t r, int64_t k, int64_t n, float* to) const {
    F16 half[run_length];
    Buffer buffer;
    narrow(x.read(r * K + k, n, buffer), n, half);
    widen(half, n, to);
  }
  float at(int64_t r, int64_t k) const {
    Buffer buffer;
    return *x.read(r * K + k, 1, buffer);
  }
  bool is_outlier(uint32_t magnitude) const { return linear_int8::is_outlier(magnitude, threshold); }

  Input x;
  int64_t R, K;
  float threshold;
};

/// The columns of outliers, in order.
class Outliers {
 public:
  Outliers(const Rows& rows, Room& room)
      : columns_(room.take<int32_t>(rows.K)), largest_(room.take<uint32_t>(rows.threshold > 0 ? blocks(rows) * rows.K : 0)) {}

  void find(const Rows& rows) {
    count_ = 0;
    if (!(rows.threshold > 0)) return;
    const int64_t n = blocks(rows);
    sdk::parallel(n, [&](int64_t block) {
      uint32_t* const largest = largest_ + block * rows.K;
      std::fill_n(largest, rows.K, 0u);
      float numbers[run_length];
      const int64_t last = std::min(rows.R, (block + 1) * rows_at_once);
      for (int64_t k = 0; k < rows.K; k += run_length) {
        const int64_t size = std::min(run_length, rows.K - k);
        uint32_t* __restrict of = largest + k;
        for (int64_t r = block * rows_at_once; r < last; ++r) {
          rows.in_f16(r, k, size, numbers);
          for (int64_t i = 0; i < size; ++i) of[i] = std::max(of[i], int8_rows::magnitude_bits(numbers[i]));
        }
      }
    });
    for (int64_t block = 1; block < n; ++block)
      for (int64_t k = 0; k < rows.K; ++k) largest_[k] = std::max(largest_[k], largest_[block * rows.K + k]);
    for (int64_t k = 0; k < rows.K; ++k)
      if (rows.is_outlier(largest_[k])) columns_[count_++] = static_cast<int32_t>(k);
  }
  const int32_t* begin() const { return columns_; }
  const int32_t* end() const { return columns_ + count_; }
  int64_t count() const { return count_; }
  int64_t at(int64_t i) const { return columns_[i]; }

 private:
  static constexpr int64_t rows_at_once = 64;
  static int64_t blocks(const Rows& rows) { return divide_up(rows.R, rows_at_once); }
  int32_t* columns_;
  uint32_t* largest_;  ///< of each block of rows, magnitudes by column
  int64_t count_ = 0;
};

/// body(row, numbers, scale, inverse) for each row, in lanes: its numbers after F16, 0 in columns of outliers, with room for K; and its
/// scale. `memory(lane)`: room for K floats.
template <class Memory, class Body>
void for_each_row(const Rows& rows, const Outliers& outliers, int64_t n_lanes, const Memory& memory, const Body& body) {
  constexpr int64_t at_once = 8;
  in_lanes(n_lanes, divide_up(rows.R, at_once), [&](int64_t task, int64_t lane) {
    float* const numbers = memory(lane);
    for (int64_t r = task * at_once; r < std::min(rows.R, (task + 1) * at_once); ++r) {
      for (int64_t k = 0; k < rows.K; k += run_length) rows.in_f16(r, k, std::min(run_length, rows.K - k), numbers + k);
      uint32_t most = 0;
      if (outliers.count() == 0) {
        for (int64_t k = 0; k < rows.K; ++k) most = std::max(most, int8_rows::magnitude_bits(numbers[k]));
      } else {
        for (int64_t k = 0; k < rows.K; ++k)
          if (const uint32_t bits = int8_rows::magnitude_bits(numbers[k]); !rows.is_outlier(bits)) most = std::max(most, bits);
        for (const int32_t k : outliers) numbers[k] = 0;
      }
      const float scale = int8_rows::magnitude(most);
      body(r, numbers, scale, int8_rows::inverse(scale));
    }
  });
}

}  // namespace galley::cpu::int8
