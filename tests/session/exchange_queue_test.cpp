// The processor's queue for exchanges: a thread beside the one that hands out work.
#include "models/devices/cpu/exchange_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

namespace galley {
namespace {

TEST(ExchangeQueue, RunsInOrderAndIsWaitedFor) {
  cpu::ExchangeQueue queue;
  queue.wait(queue.count());  // nothing was put
  std::vector<int> done;      // of the queue's thread until it is waited for
  for (int i = 0; i < 1000; ++i) {
    queue.put([&done, i] { done.push_back(i); });
    if (i % 100 != 99) continue;
    queue.wait(queue.count());
    ASSERT_EQ(done.size(), static_cast<size_t>(i) + 1);
    ASSERT_EQ(done.back(), i);
  }
}

TEST(ExchangeQueue, AnEarlierMomentDoesNotWaitForWhatComesAfter) {
  cpu::ExchangeQueue queue;
  std::atomic<bool> goes_on = false;
  queue.put([] {});
  const uint64_t first = queue.count();
  queue.put([&goes_on] {
    while (!goes_on) std::this_thread::yield();
  });
  queue.wait(first);
  goes_on = true;
  queue.wait(queue.count());
}

TEST(ExchangeQueue, AFailureLeavesOutWhatComesAfter) {
  cpu::ExchangeQueue queue;
  int done = 0;
  queue.put([&done] { ++done; });
  queue.put([] { throw sdk::Failure(GALLEY_LOST, "rank 1 is gone", "start again"); });
  queue.put([&done] { ++done; });
  for (int again = 0; again < 2; ++again) {
    try {
      queue.wait(queue.count());
      FAIL() << "nothing was thrown";
    } catch (const sdk::Failure& failure) {
      EXPECT_EQ(failure.status, GALLEY_LOST);
      EXPECT_EQ(failure.what(), std::string("rank 1 is gone"));
      EXPECT_EQ(failure.hint, "start again");
    }
  }
  EXPECT_EQ(done, 1);
}

TEST(ExchangeQueue, EndsWithWorkLeft) {
  std::atomic<bool> begun = false;
  {
    cpu::ExchangeQueue queue;
    queue.put([&begun] { begun = true; });
    while (!begun) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) queue.put([] {});
  }
  EXPECT_TRUE(begun);
}

}  // namespace
}  // namespace galley
