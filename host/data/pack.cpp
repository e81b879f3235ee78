#include "host/data/pack.hpp"

#include <algorithm>
#include <map>
#include <vector>

namespace galley {
namespace {

// The row of each piece; `pieces` are in falling order of length, shorter than `length`. Returns how many rows there are.
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

Rows pack_rows(std::span<const Extent> documents, uint64_t length, std::span<Piece> pieces, std::span<uint64_t> row_begin) {
  std::vector<Piece> rests;
  size_t placed = 0;
  for (const Extent& document : documents) {
    uint64_t left = document.tokens < 2 ? 0 : document.tokens - 1;
    uint64_t begin = document.begin;
    for (; left >= length; begin += length, left -= length) {
      row_begin[placed] = placed;
      pieces[placed++] = {begin, length};
    }
    if (left > 0) rests.push_back({begin, left});
  }
  const size_t full_rows = placed;

  std::stable_sort(rests.begin(), rests.end(), [](const Piece& a, const Piece& b) { return a.length > b.length; });
  std::vector<size_t> row_of;
  const size_t mixed_rows = assign_rows(rests, length, &row_of);

  // Counting sort of the rests by row: row_begin is first the next free place of each row, then, moved up by one, its end.
  const std::span<uint64_t> next = row_begin.subspan(full_rows, mixed_rows + 1);
  std::fill(next.begin(), next.end(), 0);
  for (const size_t row : row_of) ++next[row + 1];
  next[0] = full_rows;
  for (size_t row = 0; row < mixed_rows; ++row) next[row + 1] += next[row];
  for (size_t i = 0; i < rests.size(); ++i) pieces[next[row_of[i]]++] = rests[i];
  for (size_t row = mixed_rows; row > 0; --row) next[row] = next[row - 1];
  next[0] = full_rows;

  return {pieces.first(full_rows + rests.size()), row_begin.first(full_rows + mixed_rows + 1)};
}

}  // namespace galley
