#include "host/sources/shape.hpp"

#include <algorithm>
#include <bit>
#include <string>

#include "host/base/random.hpp"
#include "host/plan/program.hpp"
#include "host/tokens/store.hpp"

namespace galley {
namespace {

void mask(const BatchRow& row, size_t begin, size_t end, const Masking& masking, RowNumber number) {
  const int64_t random[2] = {static_cast<int64_t>(number.validation ? masking.split : masking.seed), static_cast<int64_t>(number.number)};
  const uint64_t key = galley_random_key(random, galley_name_hash(number.validation ? "data.masked.validation" : "data.masked"));
  const std::span<int32_t> tokens = row.tokens(), labels = row[Fill::MaskedTokens];
  for (size_t s = begin; s < end; ++s) {
    const auto id = static_cast<size_t>(tokens[s]);
    if (id < masking.special.size() && masking.special[id]) continue;
    const galley_philox_block block = galley_random_block(key, 0, 0, static_cast<int64_t>(s));
    if (galley_uniform(block.word[0]) >= masking.share) continue;
    labels[s] = tokens[s];
    const double lot = galley_uniform(block.word[1]);
    if (lot < 0.8) tokens[s] = masking.mask;
    else if (lot < 0.9) tokens[s] = static_cast<int32_t>(below(bits64(block, 1), static_cast<uint64_t>(masking.vocabulary)));
  }
}

/// Numbers of a store, read some at a time.
class Reading {
 public:
  Reading(const TokenStore& store, uint64_t end) : store_(store), end_(end) {}
  Result<uint32_t> at(uint64_t i) {
    if (i < first_ || i >= first_ + size_) {
      first_ = i;
      size_ = std::min<uint64_t>(kRead, end_ - i);
      TRY_STATUS(store_.read_tokens(i, std::span(read_).first(size_)));
    }
    return read_[i - first_];
  }

 private:
  static constexpr uint64_t kRead = 256;
  const TokenStore& store_;
  uint64_t end_, first_ = 0, size_ = 0;
  std::array<uint32_t, kRead> read_ = {};
};

}  // namespace

void bound_row(const BatchRow& row, size_t begin, size_t end) {
  const std::span<const int32_t> first_key = row.first_key();
  if (const std::span<int32_t> last_key = row[Fill::LastKey]; !last_key.empty())
    for (size_t s = last_key.size(); s-- > 0;) {
      const bool goes_on = s + 1 < last_key.size() && first_key[s + 1] == first_key[s];
      last_key[s] = goes_on ? last_key[s + 1] : static_cast<int32_t>(s);
    }
  const bool any = begin < end;
  for (int32_t& at : row[Fill::FirstToken]) at = row.first + static_cast<int32_t>(any ? begin : 0);
  for (int32_t& at : row[Fill::LastToken]) at = row.first + static_cast<int32_t>(any ? end - 1 : 0);
  std::ranges::fill(row[Fill::SourceFirst], static_cast<int32_t>(any ? begin : 0));
  std::ranges::fill(row[Fill::SourceLast], static_cast<int32_t>(any ? end - 1 : 0));
  int32_t position = 0;
  for (int32_t& at : row[Fill::TargetPositions]) at = position++;
}

void complete_row(const BatchRow& row, size_t begin, size_t end, const Masking* masking, RowNumber number) {
  bound_row(row, begin, end);
  std::ranges::fill(row[Fill::TokenTypes], 0);
  std::ranges::fill(row[Fill::MaskedTokens], kNoLabel);
  if (masking && !row[Fill::MaskedTokens].empty()) mask(row, begin, end, *masking, number);
}

void pad_row(const BatchRow& row) {
  row.pad(0, row.length());
  for (const Fill labels : {Fill::TokenLabels, Fill::RowLabels, Fill::RowValues, Fill::TargetLabels})
    std::ranges::fill(row[labels], kNoLabel);
  std::ranges::fill(row[Fill::TargetTokens], 0);
  for (size_t i = 0; i < kMostOwnInputs; ++i) std::ranges::fill(row[own_fill(i)], own_fill(i) == row.own_labels ? kNoLabel : 0);
  complete_row(row, 0, 0, nullptr, {});
}

void pad_lanes(WindowBuffer& buffer, const Windows& windows) {
  const int64_t all = round_up(buffer.micro_batches, windows.lanes);
  for (int64_t r = buffer.rows(); r < all * buffer.layout.rows; ++r) pad_row(buffer.row(r));
}

Status write_document(const TokenStore& store, uint64_t begin, uint64_t tokens, Fill labels, int32_t start, const BatchRow& row) {
  Reading in(store, begin + tokens);
  // The text ends where something counts.
  uint64_t text = tokens / 2;
  if (labels != Fill::TokenLabels)
    for (text = 0; text < tokens && TRY(in.at(begin + text)) & kUncounted;) ++text;
  const std::span<int32_t> to = row[labels];
  if (text > row.length()) return run_error("a prepared document is longer than a row", "remove the cache of prepared data");
  row.pad(0, row.length());
  uint64_t second = text;  // where the second text begins, if there is one
  for (uint64_t s = 0; s < text; ++s) {
    const uint32_t token = TRY(in.at(begin + s));
    if (token & kSecond) second = std::min(second, s);
    row.tokens()[s] = static_cast<int32_t>(token & kTokenBits);
    row.positions()[s] = static_cast<int32_t>(s);
    row.first_key()[s] = 0;
  }
  std::ranges::fill(to, kNoLabel);
  std::ranges::fill(row[Fill::TargetTokens], 0);
  const uint64_t rest = tokens - text;
  if (labels == Fill::RowValues) {
    for (uint64_t i = 0; i < std::min<uint64_t>(rest / 2, to.size()); ++i) {
      const uint32_t high = TRY(in.at(begin + text + 2 * i)), low = TRY(in.at(begin + text + 2 * i + 1));
      to[i] = bits_of(high, low);
    }
  } else if (labels == Fill::RowLabels && to.size() > 1) {
    std::ranges::fill(to, 0);
    for (uint64_t i = 0; i < rest; ++i)
      if (const uint32_t label = TRY(in.at(begin + text + i)); label < to.size()) to[label] = 1;
  } else {
    for (uint64_t i = 0; i < std::min<uint64_t>(rest, to.size()); ++i) {
      const uint32_t label = TRY(in.at(begin + text + i));
      to[i] = label & kUncounted ? kNoLabel : static_cast<int32_t>(label);
    }
  }
  if (const std::span<int32_t> shifted = row[Fill::TargetTokens]; !shifted.empty()) {
    shifted[0] = start;
    for (size_t i = 1; i < std::min<size_t>(rest, shifted.size()); ++i) shifted[i] = to[i - 1];
  }
  complete_row(row, 0, text, nullptr, {});
  if (const std::span<int32_t> types = row[Fill::TokenTypes]; !types.empty())
    std::fill(types.begin() + static_cast<std::ptrdiff_t>(second), types.begin() + static_cast<std::ptrdiff_t>(text), 1);
  return ok();
}

}  // namespace galley
