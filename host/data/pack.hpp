// Packing documents into rows.
//
// A document of n tokens has n − 1 positions (a token whose successor is known); its last token is only ever a label. A document of
// more than S positions is cut into pieces of S; the rests are put together, longest first, each into the row that it fills best
// (best-fit decreasing), so that hardly a position is padding and no piece is cut twice. Filling rows in shuffled order instead would
// cut or pad almost every full piece, and the last positions of a row would never see a full context. Since no document sees another,
// which ones share a row changes no number of the model; epochs therefore shuffle whole rows.
#pragma once

#include <cstdint>
#include <span>

namespace galley {

/// A run of tokens in the text: `length` positions, whose labels are tokens begin + 1 … begin + length.
struct Piece {
  uint64_t begin = 0;
  uint64_t length = 0;
};

/// Rows as pieces: row r has pieces [row_begin[r], row_begin[r + 1]).
struct Rows {
  std::span<const Piece> pieces;
  std::span<const uint64_t> row_begin;  ///< one more than there are rows

  uint64_t count() const { return row_begin.size() - 1; }
  std::span<const Piece> row(uint64_t r) const { return pieces.subspan(row_begin[r], row_begin[r + 1] - row_begin[r]); }
};

/// Pieces of a document of `tokens` tokens in rows of `length` positions.
inline uint64_t count_pieces(uint64_t tokens, uint64_t length) { return tokens < 2 ? 0 : (tokens - 2) / length + 1; }

/// A document's tokens: [begin, begin + tokens) of the text.
struct Extent {
  uint64_t begin = 0;
  uint64_t tokens = 0;
};

/// Packs the documents, in their order, into `pieces` (room for the sum of count_pieces) and `row_begin` (one more). The result's spans lie
/// in them. Takes temporary memory of a few words a document. [thread-safe]
Rows pack_rows(std::span<const Extent> documents, uint64_t length, std::span<Piece> pieces, std::span<uint64_t> row_begin);

}  // namespace galley
