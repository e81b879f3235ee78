#include "host/base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace galley {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return recipe_error(std::to_string(n) + " is odd", "give an even number");
  return n / 2;
}

Result<int> quarter(int n) {
  const int first = TRY(half(n));
  return TRY(half(first));
}

Status even(int n) {
  TRY(half(n));
  return ok();
}

Status all_even(int a, int b, int* seen) {
  TRY_STATUS(even(a));
  ++*seen;
  TRY_STATUS(even(b));
  ++*seen;
  return ok();
}

TEST(Result, HoldsAValue) {
  const Result<int> result = half(8);
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(static_cast<bool>(result));
  EXPECT_EQ(*result, 4);
}

TEST(Result, HoldsAnErrorWithItsExitCodeAndHint) {
  const Result<int> result = half(3);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().exit, Exit::Recipe);
  EXPECT_EQ(result.error().cause, "3 is odd");
  EXPECT_EQ(result.error().hint, "give an even number");
}

TEST(Result, TryPassesTheFirstFailureOn) {
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(quarter(5).error().cause, "5 is odd");
  EXPECT_EQ(quarter(6).error().cause, "3 is odd");
}

TEST(Result, TryMovesValuesThatCannotBeCopied) {
  const auto make = [](int n) -> Result<std::unique_ptr<int>> { return std::make_unique<int>(TRY(half(n))); };
  const auto use = [&](int n) -> Result<int> {
    const std::unique_ptr<int> owned = TRY(make(n));
    return *owned;
  };
  EXPECT_EQ(use(10).value(), 5);
  EXPECT_FALSE(use(1).ok());
}

TEST(Result, AStringIsAValueAndNotAnError) {
  const Result<std::string> result = std::string("text");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->size(), 4u);
}

TEST(Status, TryStatusStopsAtTheFirstFailure) {
  int seen = 0;
  EXPECT_TRUE(all_even(2, 4, &seen).ok());
  EXPECT_EQ(seen, 2);

  seen = 0;
  const Status status = all_even(2, 7, &seen);
  EXPECT_EQ(seen, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().cause, "7 is odd");
}

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(static_cast<int>(run_error("").exit), 1);
  EXPECT_EQ(static_cast<int>(recipe_error("").exit), 2);
  EXPECT_EQ(static_cast<int>(plugin_error("").exit), 4);
  EXPECT_EQ(static_cast<int>(Exit::DoesNotFit), 3);
  EXPECT_EQ(static_cast<int>(Exit::Interrupted), 130);
}

}  // namespace
}  // namespace galley
