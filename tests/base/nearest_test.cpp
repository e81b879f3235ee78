#include "host/base/nearest.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace galley {
namespace {

const std::vector<std::string> options = {"rank", "alpha", "targets", "dropout", "lr"};

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(nearest("rnak", options), "rank");       // neighbours swapped: one edit
  EXPECT_EQ(nearest("alfa", options), "alpha");      // replaced and deleted
  EXPECT_EQ(nearest("target", options), "targets");  // deleted
  EXPECT_EQ(nearest("dropoutt", options), "dropout");
}

TEST(Nearest, AKnownNameIsItsOwnNearest) {
  for (const std::string& option : options) EXPECT_EQ(nearest(option, options), option);
}

TEST(Nearest, IsSilentWhenNothingIsNear) {
  EXPECT_EQ(nearest("momentum", options), "");
  EXPECT_EQ(nearest("", options), "");
  EXPECT_EQ(nearest("rank", {}), "");
}

TEST(Nearest, AllowsHalfOfTheNameButAtLeastOneAndAtMostThreeEdits) {
  EXPECT_EQ(nearest("l", options), "lr");
  EXPECT_EQ(nearest("xy", options), "");              // two edits from lr, one allowed
  EXPECT_EQ(nearest("dripuot", options), "dropout");  // two of three
  const std::vector<std::string> one = {"accumulate"};
  EXPECT_EQ(nearest("acumulat", one), "accumulate");
  EXPECT_EQ(nearest("akkkkulate", one), "");  // four edits
}

TEST(Nearest, TiesGoToTheEarlierCandidate) {
  const std::vector<std::string> tied = {"betb", "beta"};
  EXPECT_EQ(nearest("betc", tied), "betb");
}

TEST(Nearest, CountsEditsLikeTheWholeTable) {
  // Every pair of short words over three letters against the textbook's table.
  std::vector<std::string> words = {""};
  for (size_t i = 0; words.size() < 121; ++i)
    for (const char c : {'a', 'b', 'c'}) words.push_back(words[i] + c);
  for (const std::string& a : words) {
    for (const std::string& b : words) {
      std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
      for (size_t i = 0; i <= a.size(); ++i) {
        for (size_t j = 0; j <= b.size(); ++j) {
          d[i][j] = i == 0 || j == 0 ? i + j : std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
          if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
      }
      const bool near = d[a.size()][b.size()] <= std::max<size_t>(1, a.size() / 2);
      EXPECT_EQ(nearest(a, std::vector{b}), near ? b : "") << a << " " << b;
    }
  }
}

TEST(Nearest, ANameOfManyMegabytesCostsItsLength) {
  // A table of all pairs of characters would need terabytes.
  const std::string a(1'000'000, 'x'), b = std::string(999'999, 'x') + "y", c(50'000'000, 'y');
  EXPECT_EQ(nearest(a, std::vector{c, b}), b);
  EXPECT_EQ(nearest("rnak", std::vector{c}), "");
}

TEST(DidYouMean, IsASentenceOrNothing) {
  EXPECT_EQ(did_you_mean("rnak", options), "did you mean 'rank'?");
  EXPECT_EQ(did_you_mean("momentum", options), "");
}

}  // namespace
}  // namespace galley
