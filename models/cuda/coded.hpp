// Weights that lie in a format, as products on CUDA read them: as numbers in the workspace, made in one pass before the product. A product
// that unpacked them in its own tiles would make the same numbers once for each block of rows.
// A format that products are to read is one more alternative: a type with `holds(operand)`, a constructor from the operand, and
// unpack(from, to, dtype, n, queue).
#pragma once

#include <variant>

#include "cuda/workspace.hpp"
#include "galley/cuda/four_bit.hpp"
#include "galley/cuda/gguf_blocks.hpp"
#include "galley/cuda/int8_rows.hpp"

namespace galley::cuda {

class Coded {
 public:
  Coded() = default;
  /// Of an operand that is in no format, or in one that is known here.
  explicit Coded(const galley_operand& operand) : dtype_(operand.dtype), count_(count(operand)) {
    if (sdk::four_bit::Coded::holds(operand)) from_ = sdk::four_bit::Coded(operand);
    else if (sdk::int8_rows::Coded::holds(operand)) from_ = sdk::int8_rows::Coded(operand);
    else if (sdk::gguf_blocks::Coded::holds(operand)) from_ = sdk::gguf_blocks::Coded(operand);
  }
  /// Whether numbers of the operand can be read: as they lie, or through its format.
  static bool reads(const galley_operand& operand) {
    return !operand.format || sdk::four_bit::Coded::holds(operand) || sdk::int8_rows::Coded::holds(operand) ||
           sdk::gguf_blocks::Coded::holds(operand);
  }

  explicit operator bool() const { return from_.index() != 0; }

  /// The room that its numbers take, so that what comes after is aligned as they are; 0 where they lie somewhere already.
  int64_t bytes() const {
    const int64_t own = *this ? count_ * galley_dtype_bytes(dtype_) : 0;
    return (own + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
  }
  void unpack(void* to, galley_queue* queue) const {
    if (const auto* four_bit = std::get_if<sdk::four_bit::Coded>(&from_)) cuda::unpack(*four_bit, to, dtype_, count_, queue);
    if (const auto* int8_rows = std::get_if<sdk::int8_rows::Coded>(&from_)) cuda::unpack(*int8_rows, to, dtype_, count_, queue);
    if (const auto* blocks = std::get_if<sdk::gguf_blocks::Coded>(&from_)) cuda::unpack(*blocks, to, dtype_, count_, queue);
  }

 private:
  uint32_t dtype_ = GALLEY_F32;
  int64_t count_ = 0;
  std::variant<std::monostate, sdk::four_bit::Coded, sdk::int8_rows::Coded, sdk::gguf_blocks::Coded> from_;
};

/// Throws where a product cannot read what the node has in formats: anything but its weight, input 1, or another format.
inline void check_formats(const Node& node) {
  const galley_node_view& v = *node.view();
  for (uint32_t i = 0; i < v.n_inputs; ++i)
    if (v.inputs[i] && v.inputs[i]->format && (i != 1 || !Coded::reads(*v.inputs[i]))) unsupported("another format");
}

}  // namespace galley::cuda
