// Rouge-L by its definition: F of the longest common subsequence of words.
#include "host/tools/inference/judge.hpp"

#include <gtest/gtest.h>

namespace galley {
namespace {

TEST(RougeL, IsTheFMeasureOfTheLongestCommonSubsequence) {
  EXPECT_EQ(rouge_l("the cat sat", "the cat sat"), 1.0);
  EXPECT_EQ(rouge_l("", "the cat"), 0.0);
  EXPECT_EQ(rouge_l("the cat", ""), 0.0);
  EXPECT_EQ(rouge_l("", ""), 0.0);
  EXPECT_EQ(rouge_l("dog", "cat"), 0.0);
  // Lin's own example, section 3.1: of "police killed the gunman", "police kill the gunman" has three words in order, "the gunman kill
  // police" two.
  EXPECT_DOUBLE_EQ(rouge_l("police kill the gunman", "police killed the gunman"), 0.75);
  EXPECT_DOUBLE_EQ(rouge_l("the gunman kill police", "police killed the gunman"), 0.5);
  // 2 P R / (P + R) with P = 2/6 and R = 2/3.
  EXPECT_DOUBLE_EQ(rouge_l("a x b y z w", "a b c"), 2.0 * 2 / 9);
}

TEST(RougeL, TakesWordsForRunsOfLettersAndDigitsInLowerCase) {
  EXPECT_EQ(rouge_l("The CAT, sat_on: 3 mats!", "the cat sat on 3 mats"), 1.0);
  EXPECT_EQ(rouge_l("ÄRGER über 东京", "ärger ÜBER 东京."), 1.0);
  EXPECT_DOUBLE_EQ(rouge_l("it's", "it s"), 1.0);
}

}  // namespace
}  // namespace galley
