// An operand in a format, for a kernel that does not know the format: its numbers through the format's codec (format.h).
#pragma once

#include <type_traits>

#include "galley/cpp/half.hpp"
#include "galley/cpp/node.hpp"

namespace galley::sdk {

/// The dtype of numbers of a type: float, Bf16 or F16.
template <class T>
inline constexpr uint32_t kDtypeOf = std::is_same_v<T, Bf16>  ? GALLEY_BF16
                                     : std::is_same_v<T, F16> ? GALLEY_F16
                                                              : GALLEY_F32;

class Coded {
 public:
  Coded() = default;  ///< of nothing
  /// Of an operand that is in no format, or in one that can be read here (`reads`). Throws for others.
  explicit Coded(const galley_operand& operand) {
    if (!operand.format) return;
    galley_error error = GALLEY_ERROR_INIT;
    const galley_status opened = open(operand, &error);
    if (opened != GALLEY_OK) throw Failure(opened, error.text);
  }
  /// Whether numbers of the operand can be read: as they are in memory, or through its codec, of which *unit is then that of `unit`.
  static bool reads(const galley_operand& operand, int64_t* unit = nullptr) {
    if (!operand.format) return true;
    galley_error error = GALLEY_ERROR_INIT;
    Coded coded;
    if (coded.open(operand, &error) != GALLEY_OK) return false;
    if (unit) *unit = coded.unit();
    return true;
  }

  /// Whether it is of an operand in a format.
  explicit operator bool() const { return codec_ != nullptr; }

  /// Numbers `first` to `first + n` − 1, each rounded once to the type: float, Bf16 or F16. On a device with queues: all numbers.
  template <class To>
  void decode(int64_t first, int64_t n, To* to) const {
    decode(first, n, kDtypeOf<To>, to, nullptr);
  }
  void decode(int64_t first, int64_t n, uint32_t dtype, void* to, galley_queue* queue) const {
    galley_error error;  // not filled in: its text is long
    begin(&error);
    check(codec_->decode(state_, first, n, dtype, to, queue, &error), error);
  }

  /// A range that is written begins at a multiple of so many numbers, and ends at one or at the operand's end. 0: it cannot be written.
  int64_t unit() const { return codec_ && codec_->encode ? unit_ : 0; }
  void encode(int64_t first, int64_t n, const float* from, galley_queue* queue = nullptr) const {
    galley_error error;
    begin(&error);
    check(codec_->encode(state_, first, n, from, queue, &error), error);
  }

 private:
  galley_status open(const galley_operand& operand, galley_error* error) {
    const galley_codec* const codec = GALLEY_HAS(&operand, galley_operand, codec) ? operand.codec : nullptr;
    if (!codec || !galley_understood(codec, codec->flags, 0))
      return fill(error, GALLEY_UNSUPPORTED, "a format whose numbers are not made here");
    const galley_status opened = codec->open(codec->self, &operand, state_, &unit_, error);
    if (opened == GALLEY_OK) codec_ = codec;
    return opened;
  }
  static void begin(galley_error* error) {
    error->size = static_cast<uint32_t>(sizeof *error);
    error->revision = 1;
    error->code = GALLEY_OK;
    error->text[0] = error->hint[0] = '\0';
  }
  static void check(galley_status status, const galley_error& error) {
    if (status != GALLEY_OK) throw Failure(status, error.text, error.hint);
  }

  const galley_codec* codec_ = nullptr;
  int64_t unit_ = 1;
  alignas(16) unsigned char state_[GALLEY_CODEC_STATE];
};

/// Whether a kernel that reads input `of` through Coded can read the node: no other operand is in a format.
inline bool reads_coded(const Node& node, uint32_t of) {
  const galley_node_view& v = *node.view();
  for (uint32_t i = 0; i < v.n_inputs; ++i)
    if (v.inputs[i] && v.inputs[i]->format && (i != of || !Coded::reads(*v.inputs[i]))) return false;
  return true;
}

}  // namespace galley::sdk
