#include "host/data/pack.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "host/base/random.hpp"

namespace galley {
namespace {

struct Packed {
  std::vector<Piece> pieces;
  std::vector<uint64_t> row_begin;
  Rows rows;
  Packed(const std::vector<Extent>& documents, uint64_t length) {
    uint64_t most = 0;
    for (const Extent& document : documents) most += count_pieces(document.tokens, length);
    pieces.resize(most);
    row_begin.resize(most + 1);
    rows = pack_rows(documents, length, pieces, row_begin);
  }
};

TEST(CountPieces, CountsPositionsNotTokens) {
  EXPECT_EQ(count_pieces(0, 4), 0u);
  EXPECT_EQ(count_pieces(1, 4), 0u);
  EXPECT_EQ(count_pieces(2, 4), 1u);
  EXPECT_EQ(count_pieces(5, 4), 1u);
  EXPECT_EQ(count_pieces(6, 4), 2u);
  EXPECT_EQ(count_pieces(9, 1), 8u);
}

TEST(PackRows, EveryPositionIsInOneRow) {
  for (const uint64_t length : {1, 2, 7, 16, 100}) {
    std::vector<Extent> documents;
    uint64_t end = 0, positions = 0;
    for (uint64_t i = 0; i < 200; ++i) {
      const uint64_t tokens = below(bits64(galley_philox(length, i, 0), 0), 60);
      documents.push_back({end, tokens});
      end += tokens;
      positions += tokens < 2 ? 0 : tokens - 1;
    }
    const Packed packed(documents, length);
    EXPECT_EQ(packed.rows.pieces.size(), packed.pieces.size());
    std::vector<int> covered(end, 0);
    for (uint64_t r = 0; r < packed.rows.count(); ++r) {
      uint64_t filled = 0;
      for (const Piece& piece : packed.rows.row(r)) {
        filled += piece.length;
        for (uint64_t i = 0; i < piece.length; ++i) ++covered[piece.begin + i];
      }
      EXPECT_GT(filled, 0u);
      EXPECT_LE(filled, length);
    }
    for (const Extent& document : documents) {
      for (uint64_t i = 0; i < document.tokens; ++i) EXPECT_EQ(covered[document.begin + i], i + 1 < document.tokens ? 1 : 0);
    }
    // Best fit decreasing needs at most 11/9 of the rows that are needed at all, and one more.
    EXPECT_LE(packed.rows.count(), positions * 11 / (length * 9) + 1) << "length " << length;
  }
}

TEST(PackRows, FullPiecesAreNotCutAndRestsFitTogether) {
  // Positions 10, 6, 4, 3 in rows of 4: two full pieces and a rest of 2; one full and a rest of 2; one full; a rest of 3.
  const Packed packed({{0, 11}, {11, 7}, {18, 5}, {23, 4}}, 4);
  ASSERT_EQ(packed.rows.count(), 6u);
  for (uint64_t r = 0; r < 4; ++r) {
    ASSERT_EQ(packed.rows.row(r).size(), 1u);
    EXPECT_EQ(packed.rows.row(r)[0].length, 4u);
  }
  ASSERT_EQ(packed.rows.row(4).size(), 1u);
  EXPECT_EQ(packed.rows.row(4)[0].begin, 23u);
  ASSERT_EQ(packed.rows.row(5).size(), 2u);
  EXPECT_EQ(packed.rows.row(5)[0].begin, 8u);
  EXPECT_EQ(packed.rows.row(5)[1].begin, 15u);
}

TEST(PackRows, NothingIsNoRow) {
  const Packed packed({{0, 1}, {1, 0}}, 4);
  EXPECT_EQ(packed.rows.count(), 0u);
}

}  // namespace
}  // namespace galley
