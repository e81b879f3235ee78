// Whose word holds: a question of strength, never of the order in the recipe.
#include "host/passes/judge.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace galley {
namespace {

Said said(uint32_t strength, int64_t number, int use) { return {strength, {true, use, number, "", {}}}; }

Result<Claimed> judged(const std::vector<Said>& answers) {
  galley_subject subject = {};
  subject.name = "w";
  return judge({}, GALLEY_FACET_TRAINABLE, subject, answers);
}

TEST(Judge, NobodyClaims) { EXPECT_FALSE(judged({})->claimed); }

TEST(Judge, StrongBeatsWeakInAnyOrder) {
  // The two weak ones contradict each other, which is of no account.
  std::vector<Said> answers = {said(GALLEY_WEAK, 1, 0), said(GALLEY_WEAK, 2, 1), said(GALLEY_STRONG, 3, 2)};
  const auto by_use = [](const Said& a, const Said& b) { return a.value.use < b.value.use; };
  do {
    const auto got = judged(answers);
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got->number, 3);
    EXPECT_EQ(got->use, 2);
  } while (std::next_permutation(answers.begin(), answers.end(), by_use));
}

TEST(Judge, EqualWordsAgree) {
  const auto got = judged({said(GALLEY_WEAK, 1, 0), said(GALLEY_WEAK, 1, 1)});
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->number, 1);
}

}  // namespace
}  // namespace galley
