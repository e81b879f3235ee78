// data.random, which is a plugin that comes with Galley (plugins/random).
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/data/support.hpp"

namespace galley {
namespace {

Opened open(const Recipe& recipe, int64_t vocabulary, const Windows& windows) {
  return try_open(spec_of("random", {}), recipe, vocabulary, windows).value();
}

TEST(RandomTokens, EveryPositionCountsAndPredictsTheNext) {
  const Opened random = open(recipe_of(3, 7), 50, {2});
  EXPECT_EQ(random.info.bytes(), 0u);
  EXPECT_EQ(random.info.vocabulary, 0);
  int64_t valid = 0;
  for (const RowCopy& row : random.window(4, 2, &valid)) {
    for (size_t s = 0; s < 7; ++s) {
      EXPECT_GE(row.input_ids[s], 0);
      EXPECT_LT(row.input_ids[s], 50);
      EXPECT_GE(row.labels[s], 0);
      EXPECT_LT(row.labels[s], 50);
      EXPECT_TRUE(s == 6 || row.labels[s] == row.input_ids[s + 1]);
      EXPECT_EQ(row.position_ids[s], static_cast<int32_t>(s));
      EXPECT_EQ(row.first_key[s], 0);
    }
  }
  EXPECT_EQ(valid, 42);
}

TEST(RandomTokens, BatchEightAndEightTimesOneAreTheSame) {
  for (const int64_t length : {1, 2, 9}) {
    const std::vector<RowCopy> whole = open(recipe_of(8, length, 3), 1000, {1}).window(5, 1);
    EXPECT_EQ(open(recipe_of(1, length, 3), 1000, {8}).window(5, 8), whole);
    EXPECT_NE(open(recipe_of(8, length, 4), 1000, {1}).window(5, 1), whole);
    EXPECT_NE(open(recipe_of(8, length, 3), 1000, {1}).window(6, 1), whole);
  }
}

TEST(RandomTokens, RowsAndWindowsDiffer) {
  const Opened random = open(recipe_of(4, 16), 30000, {1});
  std::vector<RowCopy> rows = random.window(0, 1);
  for (const RowCopy& row : random.window(1, 1)) rows.push_back(row);
  for (size_t a = 0; a < rows.size(); ++a) {
    for (size_t b = 0; b < a; ++b) EXPECT_NE(rows[a], rows[b]);
  }
}

TEST(RandomTokens, AreUniform) {
  const Opened random = open(recipe_of(64, 256), 10, {1});
  std::vector<int> count(10);
  for (const RowCopy& row : random.window(0, 1)) {
    for (const int32_t id : row.input_ids) ++count[static_cast<size_t>(id)];
  }
  for (const int n : count) EXPECT_NEAR(n, 1638.4, 200);  // five standard deviations
}

TEST(RandomTokens, Errors) {
  const DataSpec spec = spec_of("random", {});
  EXPECT_EQ(open_error(spec, recipe_of({}, 4)), "data.random: the recipe gives no batch");
  EXPECT_EQ(open_error(spec_of("random", {{"seed", int64_t{1}}}), recipe_of(1, 4)), "unknown option 'seed' of data.random");
  EXPECT_EQ(open_error(spec, recipe_of(1, 4, 1, 2)), "data.random: the recipe validates every 2 steps, but nothing is held out for it");
  EXPECT_EQ(open(recipe_of(1, 4), 10, {1}).source->validation_batches(), 0);
}

}  // namespace
}  // namespace galley
