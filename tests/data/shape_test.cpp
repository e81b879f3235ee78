// What rows have beside the four fills that data comes as.
#include "host/sources/shape.hpp"

#include <bit>
#include <cmath>

#include "host/tokens/document_encoder.hpp"
#include "tests/data/support.hpp"

namespace galley {
namespace {

BatchLayout layout_with(std::initializer_list<Fill> fills, int64_t rows = 2, int64_t length = 6) {
  BatchLayout out{rows, length};
  for (const Fill fill : fills) out.fills.add(fill);
  return out;
}

std::vector<int32_t> numbers(std::span<const int32_t> of) { return {of.begin(), of.end()}; }

/// Two documents, of three and of two tokens, and padding.
void write_two(const BatchRow& row) {
  const int32_t first[] = {0, 0, 0, 3, 3};
  for (size_t s = 0; s < 5; ++s) {
    row.tokens()[s] = static_cast<int32_t>(10 + s);
    row.next()[s] = kNoLabel;
    row.positions()[s] = static_cast<int32_t>(s) - first[s];
    row.first_key()[s] = first[s];
  }
  row.pad(5, row.length());
}

TEST(Shape, FillsLieBehindEachOtherAndOnlyThoseThatAreRead) {
  const BatchLayout plain{2, 6}, more = layout_with({Fill::LastKey, Fill::RowLabels});
  EXPECT_EQ(more.offset(Fill::LastKey), plain.bytes());
  EXPECT_EQ(more.offset(Fill::RowLabels), plain.bytes() + BatchLayout::kAlignment);
  EXPECT_EQ(more.bytes(), plain.bytes() + 2 * BatchLayout::kAlignment);
  EXPECT_EQ(plain.counted(), Fill::NextTokens);
  EXPECT_EQ(more.counted(), Fill::RowLabels);
  OwnedWindow window(more, 1);
  window.buffer.micro_batches = 1;
  EXPECT_EQ(window.buffer.row(1)[Fill::LastKey].size(), 6u);
  EXPECT_EQ(window.buffer.row(1)[Fill::RowLabels].size(), 1u);
  EXPECT_TRUE(window.buffer.row(1)[Fill::MaskedTokens].empty());
}

TEST(Shape, BoundsAreThoseOfDocuments) {
  OwnedWindow window(layout_with({Fill::LastKey, Fill::TokenTypes, Fill::FirstToken, Fill::LastToken}), 1);
  window.buffer.micro_batches = 1;
  const BatchRow row = window.buffer.row(1);
  write_two(row);
  complete_row(row, 0, 5, nullptr, {});
  EXPECT_EQ(numbers(row[Fill::LastKey]), (std::vector<int32_t>{2, 2, 2, 4, 4, 5}));
  EXPECT_EQ(numbers(row[Fill::TokenTypes]), (std::vector<int32_t>(6, 0)));
  EXPECT_EQ(row[Fill::FirstToken][0], 6) << "counted in the micro-batch";
  EXPECT_EQ(row[Fill::LastToken][0], 10);
}

TEST(Shape, MasksAShareOfTheTokensAndNoSpecialOnes) {
  constexpr int64_t length = 20000;
  OwnedWindow window(layout_with({Fill::MaskedTokens}, 1, length), 1);
  window.buffer.micro_batches = 1;
  const BatchRow row = window.buffer.row(0);
  Masking masking = {1, 0.15, 1000, {true, true, true}, 7};
  const auto masked = [&](RowNumber number) {
    for (size_t s = 0; s < length; ++s) {
      row.tokens()[s] = s % 10 == 0 ? 2 : 500;
      row.next()[s] = kNoLabel;
      row.positions()[s] = row.first_key()[s] = 0;
    }
    complete_row(row, 0, length - 100, &masking, number);
    return numbers(row.tokens());
  };
  const std::vector<int32_t> tokens = masked({3, false});
  int64_t chosen = 0, masks = 0, kept = 0;
  for (size_t s = 0; s < length; ++s) {
    const int32_t label = row[Fill::MaskedTokens][s];
    const int32_t was = s % 10 == 0 ? 2 : 500;
    if (label == kNoLabel) {
      ASSERT_EQ(tokens[s], was) << "what is not chosen stays";
      continue;
    }
    ASSERT_EQ(label, was);
    ASSERT_NE(s % 10, 0u) << "a special token is chosen";
    ASSERT_LT(s, static_cast<size_t>(length - 100)) << "padding is chosen";
    ++chosen;
    masks += tokens[s] == 1;
    kept += tokens[s] == was;
  }
  // 17,910 tokens may be chosen; five standard deviations.
  EXPECT_NEAR(static_cast<double>(chosen), 0.15 * 17910, 5 * 48);
  EXPECT_NEAR(static_cast<double>(masks) / static_cast<double>(chosen), 0.8, 0.04);
  EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(chosen), 0.1, 0.03);
  EXPECT_EQ(window.buffer.count_valid(), chosen);
  EXPECT_EQ(masked({3, false}), tokens) << "the same row is masked alike";
  EXPECT_NE(masked({4, false}), tokens) << "another one is not";
  EXPECT_NE(masked({3, true}), tokens) << "and neither is one of the validation data";
}

TEST(Shape, ARowWithoutADocumentCountsNothing) {
  BatchLayout layout = layout_with({Fill::TargetTokens, Fill::TargetLabels, Fill::SourceFirst, Fill::SourceLast}, 1);
  layout.target_length = 4;
  OwnedWindow window(layout, 1);
  window.buffer.micro_batches = 1;
  const BatchRow row = window.buffer.row(0);
  pad_row(row);
  EXPECT_EQ(window.buffer.count_valid(), 0);
  EXPECT_EQ(numbers(row[Fill::TargetLabels]), (std::vector<int32_t>(4, kNoLabel)));
  EXPECT_EQ(numbers(row[Fill::SourceLast]), (std::vector<int32_t>(4, 0)));
}

TEST(Shape, ValuesOfARowThatHasNoneAreNoNumbers) {
  BatchLayout layout = layout_with({Fill::RowValues}, 2);
  layout.labels = 3;
  OwnedWindow window(layout, 1);
  window.buffer.micro_batches = 1;
  const BatchRow row = window.buffer.row(1);
  ASSERT_EQ(row[Fill::RowValues].size(), 3u);
  pad_row(window.buffer.row(0));
  for (int32_t& value : row[Fill::RowValues]) value = std::bit_cast<int32_t>(-0.0f);
  EXPECT_EQ(window.buffer.count_valid(), 3);
  for (const int32_t value : window.buffer.row(0)[Fill::RowValues]) EXPECT_TRUE(std::isnan(std::bit_cast<float>(value)));
}

TEST(Shape, HalvesOfAValueAreNoTokens) {
  for (const float value : {-1.5f, 0.0f, -0.0f, 3e38f, 1e-42f}) {
    const auto [high, low] = halves_of(value);
    for (const uint32_t half : {high, low}) EXPECT_EQ(half & ~kTokenBits, kHalf);
    EXPECT_EQ((high & 0xffff) << 16 | (low & 0xffff), std::bit_cast<uint32_t>(value));
  }
}

}  // namespace
}  // namespace galley
