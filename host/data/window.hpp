// The layout of micro-batches and windows in memory, which sources write and sessions read.
//
// A micro-batch has B rows of S positions, and of T positions in its targets if it has some. It has as many tensors as its model reads,
// each aligned, one after another, in the order of Fill. The first four are always there, (B, S):
//   tokens        the tokens
//   next_tokens   ALREADY SHIFTED: the token that position s has to predict (the next one of its document), or −100: none
//   positions     counted from the start of the document (or of the piece of it that is in the row); always below S
//   first_key     the index in the row of the first position that this one may attend to; it attends to [first_key, s]. The model itself
//                 applies sliding windows
// Padding has labels −100, token 0, position 0 and its own index as first_key and last_key: it attends to itself, and nothing attends to
// it. Padding of a target attends to its row's source. A model whose rows have one document each (DataInfo::one_document) does not read
// first_key.
//
// A window is the micro-batches between two updates. Windows are counted from 0 by attempted steps: step n of the metrics is window
// n − 1.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "host/base/fill.hpp"

namespace galley {

/// One row of a window: the numbers of each fill in the window's memory, none if the model does not read the fill.
struct BatchRow {
  std::array<std::span<int32_t>, kFills + kMostOwnInputs> fills;
  int32_t first = 0;                    ///< position of the row's first token in the micro-batch
  std::optional<Fill> own_labels = {};  ///< BatchLayout::own_labels()

  std::span<int32_t> operator[](Fill fill) const { return fills[static_cast<size_t>(fill)]; }
  std::span<int32_t> tokens() const { return (*this)[Fill::Tokens]; }
  std::span<int32_t> next() const { return (*this)[Fill::NextTokens]; }
  std::span<int32_t> positions() const { return (*this)[Fill::Positions]; }
  std::span<int32_t> first_key() const { return (*this)[Fill::FirstKey]; }
  size_t length() const { return tokens().size(); }

  /// Makes positions [begin, end) padding, in the four fills that are always there.
  void pad(size_t begin, size_t end) const {
    for (size_t s = begin; s < end; ++s) {
      tokens()[s] = 0;
      next()[s] = kNoLabel;
      positions()[s] = 0;
      first_key()[s] = static_cast<int32_t>(s);
    }
  }
};

/// The layout of a micro-batch: its bytes and offsets.
struct BatchLayout {
  static constexpr uint64_t kAlignment = 64;

  int64_t rows = 0;                      ///< B
  int64_t length = 0;                    ///< S
  int64_t target_length = 0;             ///< T; 0: rows have no targets
  int64_t labels = 1;                    ///< labels of a row, if rows have labels
  Fills fills = {};                      ///< the fills that are there
  std::vector<OwnInput> own = {};        ///< what a source of a plugin brings besides; always there
  std::optional<Fill> counted_own = {};  ///< one of these, whose labels count in the loss

  /// Returns how many numbers of a fill a row has.
  int64_t extent(Fill fill) const {
    if (is_own(fill)) return own_of(fill).extent > 0 ? own_of(fill).extent : length;
    const FillExtent extent = info_of(fill).extent;
    return extent == FillExtent::Row ? length : extent == FillExtent::Target ? target_length : extent == FillExtent::One ? 1 : labels;
  }
  uint64_t tensor_bytes(Fill fill = Fill::Tokens) const {
    return static_cast<uint64_t>(rows) * static_cast<uint64_t>(extent(fill)) * sizeof(int32_t);
  }
  /// Returns the offset of a fill's tensor in the micro-batch, in bytes.
  uint64_t offset(Fill fill) const {
    uint64_t out = 0;
    for (size_t f = 0; f < static_cast<size_t>(fill); ++f) out += stride(static_cast<Fill>(f));
    return out;
  }
  uint64_t bytes() const { return offset(own_fill(own.size())); }
  const OwnInput& own_of(Fill fill) const { return own[static_cast<size_t>(fill) - kFills]; }
  std::string name(Fill fill) const { return is_own(fill) ? own_of(fill).name : info_of(fill).name; }
  /// Returns the tensor of a plugin's that holds labels, whether the model reads it or not; nothing: none does.
  std::optional<Fill> own_labels() const {
    for (size_t i = 0; i < own.size(); ++i)
      if (!own[i].unit.empty()) return own_fill(i);
    return {};
  }
  bool has(Fill fill) const { return is_own(fill) ? static_cast<size_t>(fill) - kFills < own.size() : fills.has(fill); }
  /// Returns the labels that count in the loss.
  Fill counted() const {
    if (counted_own) return *counted_own;
    for (size_t f = kFills; f-- > kPlainFills;)
      if (kFillInfo[f].unit && fills.has(static_cast<Fill>(f))) return static_cast<Fill>(f);
    return Fill::NextTokens;
  }
  friend bool operator==(const BatchLayout&, const BatchLayout&) = default;

 private:
  uint64_t stride(Fill fill) const { return has(fill) ? (tensor_bytes(fill) + kAlignment - 1) / kAlignment * kAlignment : 0; }
};

/// Says how many micro-batches a window has: always the same number, or the number that comes closest to so many tokens that count.
struct Windows {
  int64_t micro_batches = 1;  ///< micro-batches of each window; with `tokens`, at most so many
  int64_t tokens = 0;         ///< tokens that count in a window; 0: the number of micro-batches is fixed
  int64_t lanes = 1;          ///< micro-batches of padding follow, up to a multiple of this
};

/// Returns the bytes that a window of at most `micro_batches` takes.
inline uint64_t window_bytes(const BatchLayout& layout, int64_t micro_batches) {
  return layout.bytes() * static_cast<uint64_t>(micro_batches);
}

/// A window in memory that somebody else owns. It is a plain handle: copies share the memory.
struct WindowBuffer {
  BatchLayout layout;
  std::span<std::byte> memory;  ///< at least window_bytes(layout, micro_batches), aligned to BatchLayout::kAlignment
  int64_t window = -1;          ///< the window's number; set by Source::fill
  int64_t micro_batches = 0;    ///< micro-batches of this window; set by Source::fill
  int64_t valid_tokens = 0;     ///< labels that count, over all micro-batches; set by Source::fill
  int64_t rows_done = 0;        ///< rows of the data done after this window; set by Source::fill if there are epochs

  int64_t rows() const { return micro_batches * layout.rows; }

  /// Returns the numbers of a fill in a micro-batch; none if the layout does not have the fill.
  std::span<int32_t> tensor(int64_t micro_batch, Fill fill) const {
    if (!layout.has(fill)) return {};
    std::byte* at = memory.data() + static_cast<uint64_t>(micro_batch) * layout.bytes() + layout.offset(fill);
    return {reinterpret_cast<int32_t*>(at), static_cast<size_t>(layout.rows * layout.extent(fill))};
  }
  /// Returns row `row` of the window: row % B of micro-batch row / B.
  BatchRow row(int64_t row) const {
    BatchRow out;
    out.first = static_cast<int32_t>(row % layout.rows * layout.length);
    out.own_labels = layout.own_labels();
    for (size_t f = 0; f < kFills + layout.own.size(); ++f) {
      const auto fill = static_cast<Fill>(f);
      if (!layout.has(fill)) continue;
      const auto extent = static_cast<size_t>(layout.extent(fill));
      out.fills[f] = tensor(row / layout.rows, fill).subspan(static_cast<size_t>(row % layout.rows) * extent, extent);
    }
    return out;
  }
  /// Returns how many labels count in rows [0, micro_batches · B).
  int64_t count_valid() const {
    int64_t valid = 0;
    for (int64_t m = 0; m < micro_batches; ++m) {
      const std::span<const int32_t> labels = tensor(m, layout.counted());
      valid += static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), kNoLabel);
    }
    return valid;
  }
};

}  // namespace galley
