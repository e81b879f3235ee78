// Where a batch lies in memory, and which rows make a window.
//
// A micro-batch is B rows of S positions, as four I32 tensors (B, S), each aligned, one behind the other:
//   input_ids     the tokens
//   labels        ALREADY SHIFTED: the token that position s is to predict (the next one of its document), or −100: none
//   position_ids  counted from the start of the document (or of the piece of it that is in the row); always below S
//   first_key     the index in the row of the first position that this one may attend to; it attends to [first_key, s]. What an
//                 attention layer's sliding window takes off is the model's affair
// Padding has label −100, input id 0, position 0 and its own index as first_key: it sees itself and nobody sees it. A model whose rows are
// one document each (DataInfo::one_document) does not read first_key.
//
// A window is the micro-batches between two updates. Windows are counted from 0 by attempted steps: step n of the metrics is window
// n − 1.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

namespace galley {

inline constexpr int32_t kNoLabel = -100;

/// The tensors of a micro-batch, in their order in memory.
inline constexpr const char* kBatchTensors[] = {"input_ids", "labels", "position_ids", "first_key"};
inline constexpr size_t kBatchTensorCount = 4;

/// One row: spans of S, into a window's memory.
struct BatchRow {
  std::span<int32_t> input_ids, labels, position_ids, first_key;

  /// Makes positions [begin, end) padding.
  void pad(size_t begin, size_t end) const {
    for (size_t s = begin; s < end; ++s) {
      input_ids[s] = 0;
      labels[s] = kNoLabel;
      position_ids[s] = 0;
      first_key[s] = static_cast<int32_t>(s);
    }
  }
};

/// Bytes and offsets of a micro-batch.
struct BatchLayout {
  static constexpr uint64_t kAlignment = 64;

  int64_t rows = 0;    ///< B
  int64_t length = 0;  ///< S

  uint64_t tensor_bytes() const { return static_cast<uint64_t>(rows) * static_cast<uint64_t>(length) * sizeof(int32_t); }
  /// Of the tensor's first byte from the micro-batch's first.
  uint64_t offset(size_t tensor) const { return tensor * stride(); }
  uint64_t bytes() const { return kBatchTensorCount * stride(); }
  friend bool operator==(const BatchLayout&, const BatchLayout&) = default;

 private:
  uint64_t stride() const { return (tensor_bytes() + kAlignment - 1) / kAlignment * kAlignment; }
};

/// How many micro-batches a window has: always the same number, or as many as come closest to a number of tokens that count.
struct Windows {
  int64_t micro_batches = 1;  ///< of each window; with a target, at most so many
  int64_t tokens = 0;         ///< the target; 0: there is none
};

/// The memory that a window of at most `micro_batches` takes.
inline uint64_t window_bytes(const BatchLayout& layout, int64_t micro_batches) {
  return layout.bytes() * static_cast<uint64_t>(micro_batches);
}

/// One window in memory that somebody else owns. A plain handle: copies share the memory.
struct WindowBuffer {
  BatchLayout layout;
  std::span<std::byte> memory;  ///< at least window_bytes(layout, micro_batches), aligned to BatchLayout::kAlignment
  int64_t window = -1;          ///< which one lies here; set by Source::fill
  int64_t micro_batches = 0;    ///< of this window; set by Source::fill
  int64_t valid_tokens = 0;     ///< labels that count, over all micro-batches; set by Source::fill
  int64_t rows_done = 0;        ///< of the data, when this window has been trained on; set by Source::fill where there are epochs

  int64_t rows() const { return micro_batches * layout.rows; }

  /// Tensor `tensor` (B, S) of a micro-batch.
  std::span<int32_t> tensor(int64_t micro_batch, size_t tensor) const {
    std::byte* at = memory.data() + static_cast<uint64_t>(micro_batch) * layout.bytes() + layout.offset(tensor);
    return {reinterpret_cast<int32_t*>(at), static_cast<size_t>(layout.rows * layout.length)};
  }
  /// Row `row` of the window: row % B of micro-batch row / B.
  BatchRow row(int64_t row) const {
    const auto length = static_cast<size_t>(layout.length);
    const auto first = static_cast<size_t>(row % layout.rows) * length;
    const auto of = [&](size_t t) { return tensor(row / layout.rows, t).subspan(first, length); };
    return {of(0), of(1), of(2), of(3)};
  }
  /// Labels that count in rows [0, micro_batches · B).
  int64_t count_valid() const {
    int64_t valid = 0;
    for (int64_t m = 0; m < micro_batches; ++m) {
      const std::span<const int32_t> labels = tensor(m, 1);
      valid += static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), kNoLabel);
    }
    return valid;
  }
};

}  // namespace galley
