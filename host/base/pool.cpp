#include "host/base/pool.hpp"

#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "host/base/arithmetic.hpp"
#include "host/base/ordered.hpp"

namespace galley {
namespace {

// How long a thread spins before it sleeps. Longer than what lies between two kernels, and than most threads are done before the last one;
// far shorter than the milliseconds for which the system gives a processor to another program.
constexpr auto kPatience = std::chrono::microseconds(50);
// How long while the others are seen to run: whoever sleeps lends nothing, and may find another program on its processor when it wakes.
constexpr auto kLongPatience = std::chrono::microseconds(500);

constexpr int kCountBits = 40;
constexpr uint64_t kCount = (uint64_t{1} << kCountBits) - 1;

// Not std::atomic::wait: it yields before it sleeps, which beside a busy program costs a whole slice of its time, and it wakes one thread
// or all.
void sleep(std::atomic<uint32_t>& word, uint32_t old) {
  static_assert(sizeof word == sizeof(uint32_t));
  ::syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, old, nullptr, nullptr, 0);
}
void wake(std::atomic<uint32_t>& word, int threads) { ::syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0); }

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

// With more threads than processors, one that spins keeps another from its work.
Pool::Pool(int threads) : wanted_(static_cast<size_t>(std::max(1, threads))), spins_(wanted_ <= usable_threads()) {}

Pool::~Pool() {
  stop_ = true;
  ++generation_;
  wake(generation_, INT_MAX);
  for (std::thread& thread : threads_) thread.join();
}

void Pool::start() {
  shares_ = std::make_unique<Share[]>(wanted_);
  threads_.reserve(wanted_ - 1);
  // Signals that are meant for the program go to the thread that handles them; a fault stays with the thread that made it.
  sigset_t all, before;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    // Until all have started, count_ says that there is nobody else.
    while (threads_.size() + 1 < wanted_) threads_.emplace_back([this, own = threads_.size() + 1] { work(own); });
  } catch (const std::system_error&) {
    // No more threads are to be had: which of them does a block makes no difference.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  count_ = threads_.size() + 1;
}

void Pool::run(int64_t blocks, void (*fn)(void*, int64_t), void* context) {
  if (blocks <= 1 || wanted_ == 1 || static_cast<uint64_t>(blocks) > kCount || busy_.test_and_set(std::memory_order_acquire)) {
    for (int64_t block = 0; block < blocks; ++block) fn(context, block);
    return;
  }
  if (!shares_) start();
  fn_ = fn;
  context_ = context;
  blocks_ = blocks;
  ++number_;
  done_.store(0, std::memory_order_relaxed);
  const size_t count = count_;
  for (size_t k = 0, begin = 0; k < count; ++k) {
    const auto end = static_cast<size_t>(blocks) / count * (k + 1) + std::min(static_cast<size_t>(blocks) % count, k + 1);
    shares_[k].end = static_cast<int64_t>(end);
    shares_[k].open.store(uint64_t{number_} << kCountBits | (end - begin), std::memory_order_release);
    begin = end;
  }
  generation_.store(number_);
  if (const uint32_t asleep = idle_.load()) wake(generation_, static_cast<int>(std::min<int64_t>(asleep, blocks - 1)));
  take(0);
  while (finished_.load(std::memory_order_acquire) != number_) wait(finished_, number_ - 1, caller_asleep_, 0);
  const std::exception_ptr failure = std::exchange(failure_, nullptr);
  busy_.clear(std::memory_order_release);
  if (failure) std::rethrow_exception(failure);
}

void Pool::work(size_t own) {
  for (uint32_t seen = 0;;) {
    wait(generation_, seen, idle_, own);
    if (stop_) return;
    seen = generation_.load(std::memory_order_acquire);
    take(own);
  }
}

// A thread that comes late may claim blocks of later work than it woke for, which is as well: what it claims, nobody else has.
void Pool::take(size_t own) {
  int64_t done = 0, block = 0;
  if (spins_) shares_[own].thread.begin();
  const Arithmetic before = Arithmetic::now();
  const size_t count = count_;
  for (size_t k = 0; k < count; ++k)
    for (Share& share = shares_[(own + k) % count]; claim(share, block); ++done) call(block);
  if (done > 0 && before.put_back()) arithmetic_left_changed() = true;
  if (done > 0) finish(done);
  if (spins_) shares_[own].thread.end();
}

// Whoever claims a block holds up the end of its work, so that `end`, fn_ and the rest stay as they are until finish().
bool Pool::claim(Share& share, int64_t& block) {
  uint64_t open = share.open.load(std::memory_order_acquire);
  do {
    if ((open & kCount) == 0) return false;
  } while (!share.open.compare_exchange_weak(open, open - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  block = share.end - static_cast<int64_t>(open & kCount);
  return true;
}

void Pool::call(int64_t block) noexcept {
  try {
    fn_(context_, block);
  } catch (...) {
    while (failing_.test_and_set(std::memory_order_acquire)) relax();
    if (!failure_ || block < failed_) {
      failed_ = block;
      failure_ = std::current_exception();
      // An exception of another language has no pointer.
      if (!failure_) failure_ = std::make_exception_ptr(std::runtime_error("an exception of unknown type"));
    }
    failing_.clear(std::memory_order_release);
  }
}

void Pool::finish(int64_t done) {
  const int64_t blocks = blocks_;
  const uint32_t number = number_;
  if (done_.fetch_add(done, std::memory_order_acq_rel) + done < blocks) return;
  finished_.store(number);
  if (caller_asleep_.load() > 0) wake(finished_, 1);
}

void Pool::wait(std::atomic<uint32_t>& word, uint32_t old, std::atomic<uint32_t>& sleepers, size_t own) {
  if (word.load(std::memory_order_acquire) != old) return;
  if (spins_) {
    const Clock::time_point start = Clock::now();
    for (Clock::duration waited = {}; waited < kPatience || (waited < kLongPatience && others_run(own)); waited = Clock::now() - start) {
      for (int i = 0; i < 16; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        relax();
      }
    }
  }
  // Counted before the system compares the word a last time, as the other side changes the word before it looks at the count.
  ++sleepers;
  while (word.load() == old) sleep(word, old);
  --sleepers;
}

// False once there is nothing to spin for: nobody has a block, or somebody who has was moved to this thread's processor.
bool Pool::others_run(size_t own) {
  bool run = false;
  for (size_t k = 0; k < count_; ++k) {
    if (k == own) continue;
    const ProcessorLoan::State state = shares_[k].thread.look();
    if (state == ProcessorLoan::State::Starved && shares_[k].thread.lend()) return false;
    run |= state != ProcessorLoan::State::Done;
  }
  return run;
}

}  // namespace galley
