#include "host/base/nearest.hpp"

#include <gtest/gtest.h>

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

TEST(DidYouMean, IsASentenceOrNothing) {
  EXPECT_EQ(did_you_mean("rnak", options), "did you mean 'rank'?");
  EXPECT_EQ(did_you_mean("momentum", options), "");
}

}  // namespace
}  // namespace galley
