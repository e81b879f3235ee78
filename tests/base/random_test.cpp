#include "host/base/random.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace galley {
namespace {

struct Known {
  uint64_t key, low, high;
  uint32_t word[4];
};

// philox4x32-10 of Random123's kat_vectors; words of counter and key are given low word first.
constexpr Known kKnown[] = {
    {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {~0ull, ~0ull, ~0ull, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {0x299f31d0a4093822ull, 0x85a308d3243f6a88ull, 0x0370734413198a2eull, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(Philox, GivesTheKnownAnswers) {
  for (const Known& known : kKnown) {
    const galley_philox_block block = galley_philox(known.key, known.low, known.high);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(block.word[i], known.word[i]);
    EXPECT_EQ(bits64(block, 1), static_cast<uint64_t>(known.word[3]) << 32 | known.word[2]);
  }
}

TEST(Below, CoversTheRangeEvenly) {
  EXPECT_EQ(below(0, 7), 0u);
  EXPECT_EQ(below(~0ull, 7), 6u);
  EXPECT_EQ(below(~0ull, 1), 0u);
  std::vector<int> count(10);
  for (uint64_t i = 0; i < 100'000; ++i) ++count[below(bits64(galley_philox(1, i, 0), 0), 10)];
  for (const int n : count) EXPECT_NEAR(n, 10'000, 500);  // five standard deviations
}

TEST(Permutation, IsOne) {
  for (const uint64_t size : {1, 2, 3, 4, 5, 16, 17, 100, 1000, 4097}) {
    for (const uint64_t key : {0, 1, 77}) {
      const Permutation permutation(size, key);
      std::set<uint64_t> seen;
      for (uint64_t i = 0; i < size; ++i) seen.insert(permutation(i));
      EXPECT_EQ(seen.size(), size);
      EXPECT_EQ(*seen.rbegin(), size - 1);
    }
  }
}

TEST(Permutation, EveryOrderOfAFewComesAboutEquallyOften) {
  std::vector<int> count(24);
  for (uint64_t key = 0; key < 24'000; ++key) {
    const Permutation permutation(4, key);
    std::vector<uint64_t> left = {0, 1, 2, 3};
    size_t order = 0;
    for (uint64_t i = 0; i < 4; ++i) {
      const auto at = std::find(left.begin(), left.end(), permutation(i));
      order = order * (4 - i) + static_cast<size_t>(at - left.begin());
      left.erase(at);
    }
    ++count[order];
  }
  for (const int n : count) EXPECT_NEAR(n, 1000, 160);
}

TEST(Permutation, NeighboursDoNotStayTogether) {
  const Permutation permutation(10'000, 5);
  int together = 0;
  for (uint64_t i = 0; i + 1 < 10'000; ++i) together += permutation(i + 1) == permutation(i) + 1;
  EXPECT_LT(together, 8);  // 1 is expected
}

}  // namespace
}  // namespace galley
