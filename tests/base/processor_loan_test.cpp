// A thread without a processor is given that of the one who waits for it, and goes back.
#include "host/base/processor_loan.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "host/base/pool.hpp"

namespace galley {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

cpu_set_t only(size_t processor) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  return set;
}

cpu_set_t allowed() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof set, &set);
  return set;
}

/// A thread that never rests, on one processor.
class Busy {
 public:
  explicit Busy(size_t processor)
      : thread_([this, processor] {
          const cpu_set_t set = only(processor);
          sched_setaffinity(0, sizeof set, &set);
          while (!stop_) {}
        }) {}
  ~Busy() {
    stop_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

/// Two processors that this program may use; false on a machine with one.
bool two_processors(size_t& first, size_t& second) {
  const cpu_set_t all = allowed();
  std::vector<size_t> found;
  for (size_t i = 0; i < CPU_SETSIZE; ++i)
    if (CPU_ISSET(i, &all)) found.push_back(i);
  if (found.size() < 2) return false;
  first = found[0];
  second = found[1];
  return true;
}

TEST(ProcessorLoan, AThreadThatSleepsIsStarvedAndOneThatRunsIsNot) {
  ProcessorLoan loan;
  EXPECT_EQ(loan.look(), ProcessorLoan::State::Done);
  std::atomic<bool> sleeping = false, sleep = false, stop = false;
  std::atomic<bool> runs = false;
  std::thread worker([&] {
    loan.begin();
    runs = true;
    while (!sleep) {}
    sleeping = true;
    while (!stop) std::this_thread::sleep_for(200ms);
    loan.end();
  });
  while (!runs) std::this_thread::yield();
  loan.look();
  const auto until = Clock::now() + 10s;
  bool ran = false;
  while (!ran && Clock::now() < until) ran = loan.look() == ProcessorLoan::State::Running;
  EXPECT_TRUE(ran);
  sleep = true;
  while (!sleeping) std::this_thread::yield();
  std::this_thread::sleep_for(20ms);
  loan.look();
  EXPECT_EQ(loan.look(), ProcessorLoan::State::Starved);
  stop = true;
  worker.join();
  EXPECT_EQ(loan.look(), ProcessorLoan::State::Done);
  EXPECT_FALSE(loan.lend()) << "of one that is done";
}

// The worker shares a processor with a thread that never rests; what it does meanwhile is wait to find itself on the other one.
TEST(ProcessorLoan, AStarvedThreadMovesToTheLendersProcessorAndBack) {
  size_t ours = 0, busy = 0;
  if (!two_processors(ours, busy)) GTEST_SKIP() << "one processor";
  const cpu_set_t all = allowed(), here = only(ours);
  ProcessorLoan loan;
  Busy neighbour(busy);
  std::atomic<bool> runs = false, moved = false;
  cpu_set_t after = {};
  std::thread worker([&] {
    cpu_set_t set = only(busy);
    sched_setaffinity(0, sizeof set, &set);
    set = all;
    sched_setaffinity(0, sizeof set, &set);
    loan.begin();
    runs = true;
    const cpu_set_t lent = only(ours);
    const auto give_up = Clock::now() + 20s;
    while (!moved && Clock::now() < give_up) {
      set = allowed();
      moved = CPU_EQUAL(&set, &lent) && sched_getcpu() == static_cast<int>(ours);
    }
    loan.end();
    after = allowed();
  });
  sched_setaffinity(0, sizeof here, &here);
  while (!runs) std::this_thread::yield();
  const auto give_up = Clock::now() + 10s;
  bool lent = false;
  while (!lent && Clock::now() < give_up) lent = loan.look() == ProcessorLoan::State::Starved && loan.lend();
  EXPECT_TRUE(lent);
  EXPECT_FALSE(loan.lend()) << "twice";
  worker.join();
  sched_setaffinity(0, sizeof all, &all);
  EXPECT_TRUE(moved);
  EXPECT_TRUE(CPU_EQUAL(&after, &all));
}

// Works beside two threads that never rest, until a block has been done on a borrowed processor: no block is lost, and between works every
// thread may run where it could before.
TEST(ProcessorLoan, ThreadsOfAPoolLendAndAreWhereTheyWere) {
  size_t first = 0, second = 0;
  if (!two_processors(first, second)) GTEST_SKIP() << "one processor";
  const cpu_set_t all = allowed();
  Busy a(first), b(second);
  Pool pool(2);
  std::atomic<int64_t> blocks = 0, borrowed = 0;
  int64_t works = 0, elsewhere = 0;
  const auto body = [&](int64_t) {
    const auto until = Clock::now() + 200us;
    while (Clock::now() < until) {}
    const cpu_set_t now = allowed();
    borrowed += CPU_COUNT(&now) == 1;
    ++blocks;
  };
  using Body = decltype(body);
  const auto call = [](void* context, int64_t block) { (*static_cast<const Body*>(context))(block); };
  for (const auto give_up = Clock::now() + 20s; works < 100 || (borrowed == 0 && Clock::now() < give_up); ++works) {
    pool.run(8, call, const_cast<void*>(static_cast<const void*>(&body)));
    const cpu_set_t now = allowed();
    elsewhere += !CPU_EQUAL(&now, &all);
  }
  EXPECT_EQ(blocks, 8 * works);
  EXPECT_EQ(elsewhere, 0);
  EXPECT_GT(borrowed, 0);
}

}  // namespace
}  // namespace galley
