#include "host/base/ordered.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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

TEST(InOrder, AnExceptionIsAnError) {
  for (const size_t threads : {1, 2}) {
    std::vector<int> out;
    const Status status = squares(threads, 10, &out, [](int n) -> Status {
      if (n == 5) throw std::runtime_error("no more");
      return ok();
    });
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().cause, "a worker failed: no more");
  }
}

}  // namespace
}  // namespace galley
