// Weights that are stored in a format, as products on CUDA read them: as numbers in the workspace, made in one pass before the product. A
// product that unpacked them in its own tiles would make the same numbers once for each block of rows.
#pragma once

#include "cuda/workspace.hpp"
#include "galley/cpp/coded.hpp"
#include "galley/cuda/kernel.hpp"

namespace galley::cuda {

class Coded {
 public:
  Coded() = default;
  /// Of an operand that is in no format, or in one that can be read (sdk::reads_coded).
  explicit Coded(const galley_operand& operand) : dtype_(operand.dtype), count_(count(operand)), from_(operand) {}

  explicit operator bool() const { return static_cast<bool>(from_); }

  /// The room that its numbers take, so that what comes after is aligned as they are; 0 where they are in memory already.
  int64_t bytes() const {
    const int64_t own = *this ? count_ * galley_dtype_bytes(dtype_) : 0;
    return (own + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  }
  void unpack(void* to, galley_queue* queue) const {
    if (*this) from_.decode(0, count_, dtype_, to, queue);
  }

 private:
  uint32_t dtype_ = GALLEY_F32;
  int64_t count_ = 0;
  sdk::Coded from_;
};

}  // namespace galley::cuda
