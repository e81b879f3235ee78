#include "host/tokens/pack.hpp"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "host/base/random.hpp"

namespace galley {
namespace {

using Extents = std::vector<std::pair<uint64_t, uint64_t>>;  // begin and tokens of documents

std::vector<std::vector<Piece>> pack(const Extents& documents, const PackOptions& options, Packer::Facts* facts = nullptr,
                                     const std::set<uint64_t>& uncounted = {}) {
  std::vector<std::vector<Piece>> rows;
  Packer packer(
      options,
      [&](std::span<const Piece> pieces) {
        rows.emplace_back(pieces.begin(), pieces.end());
        return ok();
      },
      [&](uint64_t begin, uint64_t length) -> Result<uint64_t> {
        uint64_t counted = 0;
        for (uint64_t at = begin + 1; at <= begin + length; ++at) counted += !uncounted.contains(at);
        return counted;
      },
      [&](uint64_t begin, uint64_t length) -> Result<uint64_t> {
        for (uint64_t end = length; end > 0; --end)
          if (!uncounted.contains(begin + end) && uncounted.contains(begin + end + 1)) return end;
        return 0;
      });
  for (const auto& [begin, tokens] : documents) EXPECT_TRUE(packer.add(begin, tokens).ok());
  EXPECT_TRUE(packer.finish().ok());
  if (facts) *facts = packer.facts();
  return rows;
}

Extents random_documents(uint64_t seed, uint64_t* positions) {
  Extents documents;
  uint64_t end = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    const uint64_t tokens = below(bits64(galley_philox(seed, i, 0), 0), 60);
    documents.emplace_back(end, tokens);
    end += tokens;
    *positions += tokens < 2 ? 0 : tokens - 1;
  }
  return documents;
}

TEST(Packer, EveryPositionIsInOneRow) {
  for (const Packing packing : {Packing::BestFit, Packing::Sequential, Packing::None}) {
    for (const uint64_t length : {1, 2, 7, 16, 100}) {
      uint64_t positions = 0;
      const Extents documents = random_documents(length, &positions);
      Packer::Facts facts;
      const auto rows = pack(documents, {length, packing, Overlong::Split, false}, &facts);
      std::vector<int> covered(documents.back().first + documents.back().second, 0);
      for (const auto& row : rows) {
        uint64_t filled = 0;
        for (const Piece& piece : row) {
          filled += piece.length;
          for (uint64_t i = 0; i < piece.length; ++i) ++covered[piece.begin + i];
        }
        EXPECT_GT(filled, 0u);
        EXPECT_LE(filled, length);
      }
      for (const auto& [begin, tokens] : documents)
        for (uint64_t i = 0; i < tokens; ++i) EXPECT_EQ(covered[begin + i], i + 1 < tokens ? 1 : 0);
      EXPECT_EQ(facts.positions, positions);
      EXPECT_EQ(facts.counted, positions);
      EXPECT_EQ(facts.rows, rows.size());
      // Best fit decreasing needs at most 11/9 of the rows that are needed at all, and one more.
      const uint64_t most = packing == Packing::BestFit      ? positions * 11 / (length * 9) + 1
                            : packing == Packing::Sequential ? (positions + length - 1) / length
                                                             : UINT64_MAX;
      EXPECT_LE(rows.size(), most) << "length " << length;
    }
  }
}

TEST(Packer, FullPiecesAreNotCutAndRestsFitTogether) {
  // Positions 10, 6, 4, 3 in rows of 4: two full pieces and a rest of 2; one full and a rest of 2; one full; a rest of 3.
  const auto rows = pack({{0, 11}, {11, 7}, {18, 5}, {23, 4}}, {4});
  ASSERT_EQ(rows.size(), 6u);
  for (size_t r = 0; r < 4; ++r) {
    ASSERT_EQ(rows[r].size(), 1u);
    EXPECT_EQ(rows[r][0].length, 4u);
  }
  ASSERT_EQ(rows[4].size(), 1u);
  EXPECT_EQ(rows[4][0].begin, 23u);
  ASSERT_EQ(rows[5].size(), 2u);
  EXPECT_EQ(rows[5][0].begin, 8u);
  EXPECT_EQ(rows[5][1].begin, 15u);
}

TEST(Packer, TruncatedDocumentsKeepTheirBeginning) {
  for (const Packing packing : {Packing::BestFit, Packing::Sequential, Packing::None}) {
    Packer::Facts facts;
    const auto rows = pack({{0, 11}, {11, 3}, {14, 5}}, {4, packing, Overlong::Truncate, false}, &facts);
    std::set<std::pair<uint64_t, uint64_t>> pieces;
    for (const auto& row : rows)
      for (const Piece& piece : row) pieces.emplace(piece.begin, piece.length);
    EXPECT_EQ(pieces, (std::set<std::pair<uint64_t, uint64_t>>{{0, 4}, {11, 2}, {14, 4}}));
    EXPECT_EQ(facts.cut, 6u);
  }
}

TEST(Packer, OverlongDocumentsAreDropped) {
  for (const Packing packing : {Packing::BestFit, Packing::Sequential, Packing::None}) {
    Packer::Facts facts;
    const auto rows = pack({{0, 11}, {11, 5}, {16, 6}}, {4, packing, Overlong::Drop, false}, &facts);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0][0].begin, 11u);
    EXPECT_EQ(rows[0][0].length, 4u);
    EXPECT_EQ(facts.dropped, 2u);
    EXPECT_EQ(facts.cut, 15u);
    EXPECT_EQ(facts.idle, 0u);
  }
}

TEST(Packer, AConversationEndsWithAWholeReply) {
  // Labels 3, 4 and 7, 8, 9 are two replies; in a row of 6 only the first ends. In the second document none does: it is cut inside it.
  Packer::Facts facts;
  const auto rows = pack({{0, 10}, {10, 9}}, {6, Packing::None, Overlong::Turn, false}, &facts, {1, 2, 5, 6, 10, 11, 12, 13});
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0][0].length, 4u);
  EXPECT_EQ(rows[0][0].counted, 2u);
  EXPECT_EQ(rows[1][0].begin, 10u);
  EXPECT_EQ(rows[1][0].length, 6u);
  EXPECT_EQ(facts.cut, 5u + 2u);
  EXPECT_EQ(facts.dropped, 0u);
}

TEST(Packer, WhatCountsNothingIsLeftOut) {
  Packer::Facts facts;
  // The labels of the first document's first row do not count, nor does anything of the second.
  const auto rows = pack({{0, 7}, {7, 3}}, {4, Packing::BestFit, Overlong::Split, false}, &facts, {1, 2, 3, 4, 8, 9});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0][0].begin, 4u);
  EXPECT_EQ(facts.counted, 2u);
  EXPECT_EQ(facts.idle, 1u);
}

TEST(Packer, RowsByLength) {
  const auto rows = pack({{0, 3}, {3, 9}, {12, 5}, {17, 2}}, {8, Packing::None, Overlong::Split, true});
  ASSERT_EQ(rows.size(), 4u);
  for (size_t r = 1; r < 4; ++r) EXPECT_GE(rows[r - 1][0].length, rows[r][0].length);
}

TEST(Packer, NothingIsNoRow) { EXPECT_TRUE(pack({{0, 1}, {1, 0}}, {4}).empty()); }

}  // namespace
}  // namespace galley
