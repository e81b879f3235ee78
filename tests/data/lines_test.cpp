#include "host/tokens/lines.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace galley {
namespace {

using Numbered = std::vector<std::pair<int64_t, std::string>>;

/// All lines of a text that comes `step` bytes at a time; "…" for one that is too long.
Numbered lines_of(const std::string& text, size_t step) {
  size_t at = 0;
  LineBlocks blocks([&](std::span<std::byte> bytes) -> Result<size_t> {
    const size_t n = std::min({bytes.size(), step, text.size() - at});
    std::memcpy(bytes.data(), text.data() + at, n);
    at += n;
    return n;
  });
  Numbered out;
  LineBlock block;
  while (blocks.next(&block).value()) {
    if (block.too_long) out.emplace_back(block.first_line, "…");
    else
      EXPECT_TRUE(for_each_line(block, [&](std::string_view line, int64_t number) {
                    out.emplace_back(number, line);
                    return ok();
                  }).ok());
  }
  return out;
}

TEST(Lines, EachLineOnceWithItsNumber) {
  for (const size_t step : {1, 2, 3, 100, 1 << 20}) {
    EXPECT_EQ(lines_of("", step), Numbered{});
    EXPECT_EQ(lines_of("a", step), (Numbered{{1, "a"}}));
    EXPECT_EQ(lines_of("a\n", step), (Numbered{{1, "a"}}));
    EXPECT_EQ(lines_of("\n", step), (Numbered{{1, ""}}));
    EXPECT_EQ(lines_of("\n\nb", step), (Numbered{{1, ""}, {2, ""}, {3, "b"}}));
    EXPECT_EQ(lines_of("one\ntwo\n\nfour\n", step), (Numbered{{1, "one"}, {2, "two"}, {3, ""}, {4, "four"}}));
  }
}

TEST(Lines, ManyAndLongOnes) {
  std::string text;
  for (int i = 1; i <= 3000; ++i) text += std::string(static_cast<size_t>(i % 400), 'x') + std::to_string(i) + "\n";
  text += std::string(3 * LineBlocks::kBlock, 'y') + "\nlast";
  const Numbered lines = lines_of(text, 65536);
  ASSERT_EQ(lines.size(), 3002u);
  for (int64_t i = 1; i <= 3000; ++i) {
    EXPECT_EQ(lines[static_cast<size_t>(i) - 1].first, i);
    EXPECT_TRUE(lines[static_cast<size_t>(i) - 1].second.ends_with(std::to_string(i)));
  }
  EXPECT_EQ(lines[3000].second.size(), 3 * LineBlocks::kBlock);
  EXPECT_EQ(lines[3001], (std::pair<int64_t, std::string>{3002, "last"}));
}

TEST(Lines, OneThatIsTooLongIsSaidAndPassedOver) {
  const std::string wall(LineBlocks::kLongest + LineBlocks::kBlock + 5, 'z');
  EXPECT_EQ(lines_of("a\n" + wall + "\nb\nc", 1 << 18), (Numbered{{1, "a"}, {2, "…"}, {3, "b"}, {4, "c"}}));
  EXPECT_EQ(lines_of(wall, 1 << 18), (Numbered{{1, "…"}}));
  EXPECT_EQ(lines_of(wall + "\n", 1 << 18), (Numbered{{1, "…"}}));
}

}  // namespace
}  // namespace galley
