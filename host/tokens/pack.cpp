#include "host/tokens/pack.hpp"

#include <algorithm>
#include <map>

namespace galley {
namespace {

// The row of each piece; `pieces` are in falling order of length. Returns how many rows there are.
size_t assign_rows(std::span<const Piece> pieces, uint64_t length, std::vector<size_t>* row_of) {
  std::map<uint64_t, std::vector<size_t>> with_room;  // free positions → rows that have so many
  size_t rows = 0;
  for (const Piece& piece : pieces) {
    size_t row = rows;
    uint64_t room = length;
    const auto best = with_room.lower_bound(piece.length);
    if (best == with_room.end()) {
      ++rows;
    } else {
      room = best->first;
      row = best->second.back();
      best->second.pop_back();
      if (best->second.empty()) with_room.erase(best);
    }
    if (room > piece.length) with_room[room - piece.length].push_back(row);
    row_of->push_back(row);
  }
  return rows;
}

}  // namespace

Status Packer::add(uint64_t begin, uint64_t tokens) {
  uint64_t left = tokens < 2 ? 0 : tokens - 1;
  bool any = false;
  const uint64_t most = options_.length;
  const bool sequential = options_.packing == Packing::Sequential, truncates = options_.overlong != Overlong::Split;
  if (left > most && options_.overlong == Overlong::Drop) {
    ++facts_.dropped;
    facts_.cut += left;
    return ok();
  }
  if (left > most && options_.overlong == Overlong::Turn) {
    if (const uint64_t whole = TRY(reply_(begin, most))) {
      facts_.cut += left - whole;
      left = whole;
    }
  }
  while (left > 0) {
    if (sequential && truncates && std::min(left, most) > most - filled_) TRY_STATUS(give_open());
    const uint64_t taken = std::min(left, sequential ? most - filled_ : most);
    const uint64_t counted = TRY(count_(begin, taken));
    const Piece piece = {begin, static_cast<uint32_t>(taken), static_cast<uint32_t>(counted)};
    begin += taken;
    left -= taken;
    if (counted > 0) {
      any = true;
      if (sequential) {
        open_.push_back(piece);
        filled_ += taken;
        if (filled_ == most) TRY_STATUS(give_open());
      } else if ((options_.packing == Packing::BestFit && taken == most) || (options_.packing == Packing::None && !options_.by_length)) {
        TRY_STATUS(give({&piece, 1}));
      } else {
        block_.push_back(piece);
        if (block_.size() == kBlock) TRY_STATUS(give_block());
      }
    }
    if (truncates) {
      facts_.cut += left;
      left = 0;
    }
  }
  if (tokens > 1 && !any) ++facts_.idle;
  return ok();
}

Status Packer::give(std::span<const Piece> pieces) {
  ++facts_.rows;
  for (const Piece& piece : pieces) {
    ++facts_.pieces;
    facts_.positions += piece.length;
    facts_.counted += piece.counted;
  }
  return row_(pieces);
}

Status Packer::give_open() {
  if (!open_.empty()) TRY_STATUS(give(open_));
  open_.clear();
  filled_ = 0;
  return ok();
}

Status Packer::give_block() {
  std::stable_sort(block_.begin(), block_.end(), [](const Piece& a, const Piece& b) { return a.length > b.length; });
  if (options_.packing == Packing::None) {
    for (const Piece& piece : block_) TRY_STATUS(give({&piece, 1}));
  } else {
    std::vector<size_t> row_of, begin;
    const size_t rows = assign_rows(block_, options_.length, &row_of);
    begin.assign(rows + 1, 0);
    for (const size_t row : row_of) ++begin[row + 1];
    for (size_t row = 0; row < rows; ++row) begin[row + 1] += begin[row];
    std::vector<Piece> ordered(block_.size());
    std::vector<size_t> next(begin.begin(), begin.end() - 1);
    for (size_t i = 0; i < block_.size(); ++i) ordered[next[row_of[i]]++] = block_[i];
    for (size_t row = 0; row < rows; ++row)
      TRY_STATUS(give(std::span<const Piece>(ordered).subspan(begin[row], begin[row + 1] - begin[row])));
  }
  block_.clear();
  return ok();
}

Status Packer::finish() {
  TRY_STATUS(give_open());
  return give_block();
}

}  // namespace galley
