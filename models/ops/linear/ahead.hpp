// Memory that is copied next: its lines are asked for a few at a time, while the block before it is multiplied.
#pragma once

#include <algorithm>
#include <cstdint>

#include "galley/tensor.h"

namespace galley::cpu {

class Ahead {
 public:
  Ahead() = default;
  /// n rows of `columns` numbers, the first of them the one with index `at`, to be asked for in `calls` calls.
  Ahead(const void* data, uint32_t dtype, int64_t at, int64_t row, int64_t columns, int64_t n, int64_t calls)
      : at_(static_cast<const char*>(data) + at * galley_dtype_bytes(dtype)),
        row_(row * galley_dtype_bytes(dtype)),
        lines_(columns * galley_dtype_bytes(dtype) / 64 + 1),
        left_(n * lines_),
        share_(left_ / calls + 1) {}
  void some() {
    for (int64_t n = std::min(share_, left_); n > 0; --n, --left_) {
      __builtin_prefetch(at_ + 64 * line_, 0, 2);
      if (++line_ == lines_) line_ = 0, at_ += row_;
    }
  }

 private:
  const char* at_ = nullptr;
  int64_t row_ = 0, lines_ = 0, left_ = 0, share_ = 0, line_ = 0;
};

}  // namespace galley::cpu
