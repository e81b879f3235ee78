// Blocks divided among threads: each is done once, whoever is late, asleep or in trouble.
#include "host/base/pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace galley {
namespace {

using namespace std::chrono_literals;

template <class Body>
void run(Pool& pool, int64_t blocks, const Body& body) {
  pool.run(
      blocks, [](void* context, int64_t block) { (*static_cast<const Body*>(context))(block); }, const_cast<Body*>(&body));
}

TEST(Pool, DoesEachBlockOnce) {
  for (const int threads : {0, 1, 2, 3, 16}) {
    Pool pool(threads);
    for (const int64_t blocks : {0, 1, 2, 3, 15, 16, 17, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(blocks));
      run(pool, blocks, [&](int64_t block) { ++done[static_cast<size_t>(block)]; });
      for (const auto& n : done) ASSERT_EQ(n, 1) << threads << " threads, " << blocks << " blocks";
    }
  }
}

// Work after work, some of it too short for the others to come, with pauses in which they fall asleep.
TEST(Pool, LosesAndRepeatsNothingOverManyWorks) {
  Pool pool(4);
  int64_t expected = 0;
  std::atomic<int64_t> sum = 0;
  for (int64_t work = 0; work < 20000; ++work) {
    const int64_t blocks = work % 37;
    run(pool, blocks, [&, work](int64_t block) { sum.fetch_add(work * 100 + block, std::memory_order_relaxed); });
    expected += blocks * work * 100 + blocks * (blocks - 1) / 2;
    ASSERT_EQ(sum, expected) << "work " << work;
    if (work % 1000 == 0) std::this_thread::sleep_for(1ms);
  }
}

// One thread is held up in its first block: the others do all the rest, its own share included.
TEST(Pool, AThreadThatIsHeldUpHoldsUpOneBlock) {
  Pool pool(2);
  constexpr int64_t blocks = 100;
  std::atomic<int64_t> others = 0;
  std::atomic<bool> held = false;
  bool all = false;
  run(pool, blocks, [&](int64_t) {
    if (held.exchange(true)) {
      ++others;
      return;
    }
    const auto give_up = std::chrono::steady_clock::now() + 10s;
    while (others < blocks - 1 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(100us);
    all = others == blocks - 1;
  });
  EXPECT_TRUE(all) << others << " of " << blocks - 1 << " blocks were done beside the first one";
}

TEST(Pool, ThreadsThatWaitSleep) {
  Pool pool(4);
  const auto used = [] {
    timespec t = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  };
  run(pool, 4, [](int64_t) {});
  const auto before = used();
  std::this_thread::sleep_for(200ms);  // between two works, all sleep
  run(pool, 2, [](int64_t block) {     // and within one, those who have none of it
    if (block == 0) std::this_thread::sleep_for(200ms);
  });
  EXPECT_LT(used() - before, 50ms);
}

TEST(Pool, ACallInsideACallRunsWhereItIs) {
  Pool pool(3);
  std::vector<int64_t> sums(8);
  run(pool, 8, [&](int64_t outer) { run(pool, 100, [&](int64_t i) { sums[static_cast<size_t>(outer)] += i; }); });
  for (const int64_t sum : sums) EXPECT_EQ(sum, 4950);
}

TEST(Pool, TwoCallersDoNotMeet) {
  Pool pool(2);
  const auto many = [&](int64_t& total) {
    for (int k = 0; k < 2000; ++k) {
      std::atomic<int64_t> sum = 0;
      run(pool, 10, [&](int64_t i) { sum += i; });
      total += sum;
    }
  };
  int64_t here = 0, there = 0;
  std::thread other([&] { many(there); });
  many(here);
  other.join();
  EXPECT_EQ(here, 90000);
  EXPECT_EQ(there, 90000);
}

TEST(Pool, ThrowsWhatTheLowestBlockThrew) {
  for (const int threads : {1, 2, 8}) {
    Pool pool(threads);
    for (int k = 0; k < 100; ++k) {
      std::string text;
      try {
        run(pool, 64, [](int64_t block) {
          if (block % 3 == 2) throw std::runtime_error("block " + std::to_string(block));
        });
      } catch (const std::runtime_error& error) {
        text = error.what();
      }
      ASSERT_EQ(text, "block 2") << threads << " threads";
      int64_t after = 0;  // and works on
      run(pool, 1, [&](int64_t) { ++after; });
      std::atomic<int64_t> many = 0;
      run(pool, 64, [&](int64_t) { ++many; });
      ASSERT_EQ(after + many, 65);
    }
  }
}

}  // namespace
}  // namespace galley
