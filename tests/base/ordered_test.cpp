#include "host/base/ordered.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <new>
#include <stdexcept>

namespace galley {
namespace {

struct Item {
  int number = 0, square = 0;
};

/// Squares of 0 … count − 1, as they are consumed; the work on some takes longer.
Status squares(size_t threads, int count, std::vector<int>* out, const std::function<Status(int)>& also = {}) {
  int next = 0;
  return in_order<Item>(
      threads,
      [&](Item& item) -> Result<bool> {
        item.number = next++;
        return item.number < count;
      },
      [&](Item& item, size_t thread) -> Status {
        EXPECT_LT(thread, threads);
        if (item.number % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
        item.square = item.number * item.number;
        return also ? also(item.number) : ok();
      },
      [&](Item& item) {
        out->push_back(item.square);
        return ok();
      });
}

TEST(InOrder, ResultsComeInTheOrderOfTheItems) {
  for (const size_t threads : {1, 2, 5}) {
    for (const int count : {0, 1, 3, 200}) {
      std::vector<int> out;
      ASSERT_TRUE(squares(threads, count, &out).ok());
      ASSERT_EQ(out.size(), static_cast<size_t>(count));
      for (int i = 0; i < count; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], i * i);
    }
  }
}

TEST(InOrder, TheFirstErrorInTheirOrderEndsIt) {
  for (const size_t threads : {1, 2, 5}) {
    std::vector<int> out;
    const Status status =
        squares(threads, 100, &out, [](int n) -> Status { return n == 30 || n == 31 ? run_error("item " + std::to_string(n)) : ok(); });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().cause, "item 30");
    EXPECT_EQ(out.size(), 30u);
  }
}

/// Runs 20 items, of which one function throws at item 5; what comes of it.
enum class Thrower { Produce, Work, Consume };
template <class Throw>
Status thrown(size_t threads, Thrower who, const Throw& raise) {
  int next = 0;
  const auto at = [&](Thrower here, const Item& item) {
    if (here == who && item.number == 5) raise();
  };
  return in_order<Item>(
      threads,
      [&](Item& item) -> Result<bool> {
        item.number = next++;
        at(Thrower::Produce, item);
        return item.number < 20;
      },
      [&](Item& item, size_t) {
        at(Thrower::Work, item);
        return ok();
      },
      [&](Item& item) {
        at(Thrower::Consume, item);
        return ok();
      });
}

// Whatever is thrown and wherever: the threads are joined, and the error says what it was.
TEST(InOrder, AnExceptionIsAnError) {
  for (const size_t threads : {1, 2, 5}) {
    for (const Thrower who : {Thrower::Produce, Thrower::Work, Thrower::Consume}) {
      EXPECT_EQ(thrown(threads, who, [] { throw std::runtime_error("no more"); }).error().cause, "an unexpected exception: no more");
      EXPECT_EQ(thrown(threads, who, [] { throw std::bad_alloc(); }).error().cause, "there is not enough memory");
      EXPECT_EQ(thrown(threads, who, [] { throw 7; }).error().cause, "an exception of unknown type");
      const std::string missing = thrown(threads, who, [] { (void)std::filesystem::file_size("/nothing/there"); }).error().cause;
      EXPECT_NE(missing.find("/nothing/there"), std::string::npos) << missing;
      EXPECT_EQ(missing.find("thread"), std::string::npos) << missing;
    }
  }
}

TEST(InOrder, MoreThreadsThanThereCanBeAreAnError) {
  std::vector<int> out;
  EXPECT_FALSE(squares(size_t{1} << 62, 10, &out).ok());
  EXPECT_TRUE(out.empty());
}

}  // namespace
}  // namespace galley
