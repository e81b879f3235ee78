// Weights that lie in a format, as products read them: run by run, in the dtype that the product multiplies, where it packs its own blocks.
// A format that products are to read is one more alternative: a type with `holds(operand)`, a constructor from the operand, and
// decode(from, at, n, to) for float, Bf16 and F16, each number rounded once as the format's unpack op rounds it.
#pragma once

#include <algorithm>
#include <variant>

#include "cpu/number.hpp"
#include "galley/cpp/four_bit_codes.hpp"
#include "galley/cpp/gguf_codes.hpp"
#include "galley/cpp/int8_rows.hpp"

namespace galley::cpu {

namespace detail {

/// The format's own, found by the type.
template <class From, class To>
void decode_by_format(const From& from, int64_t at, int64_t n, To* to) {
  decode(from, at, n, to);
}

}  // namespace detail

class Coded {
 public:
  Coded() = default;
  /// Of an operand that is in no format, or in one that is known here.
  explicit Coded(const galley_operand& operand) {
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

  /// n numbers from the one with index `at` on, in a dtype: F32, BF16 or F16.
  template <class To>
  void decode(int64_t at, int64_t n, To* to) const {
    std::visit([&](const auto& from) { decode_from(from, at, n, to); }, from_);
  }
  /// The same rounded to `dtype`, as floats.
  void load(uint32_t dtype, int64_t at, int64_t n, float* to) const {
    switch (dtype) {
      case GALLEY_BF16: return through<Bf16>(at, n, to);
      case GALLEY_F16: return through<F16>(at, n, to);
      default: return decode(at, n, to);
    }
  }

 private:
  template <class From, class To>
  static void decode_from(const From& from, int64_t at, int64_t n, To* to) {
    if constexpr (!std::is_same_v<From, std::monostate>) detail::decode_by_format(from, at, n, to);
  }
  template <class Rounded>
  void through(int64_t at, int64_t n, float* to) const {
    alignas(64) Rounded rounded[run_length];
    in_runs(0, n, run_length, [&](int64_t first, int64_t size) {
      decode(at + first, size, rounded);
      widen(rounded, size, to + first);
    });
  }

  std::variant<std::monostate, sdk::four_bit::Coded, sdk::int8_rows::Coded, sdk::gguf_blocks::Coded> from_;
};

/// Whether a kernel can read the node's weight or table, input 1; nothing else may be in a format.
inline bool reads_weight(const sdk::Node& node) {
  const galley_node_view& v = *node.view();
  for (uint32_t i = 0; i < v.n_inputs; ++i)
    if (v.inputs[i] && v.inputs[i]->format && (i != 1 || !Coded::reads(*v.inputs[i]))) return false;
  return true;
}

}  // namespace galley::cpu
