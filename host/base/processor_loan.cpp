#include "host/base/processor_loan.hpp"

#include <pthread.h>
#include <unistd.h>

namespace galley {
namespace {

pid_t this_thread() {
  thread_local const pid_t id = ::gettid();
  return id;
}

}  // namespace

void ProcessorLoan::begin() {
  if (id_ != this_thread()) {
    id_ = this_thread();
    clockid_t clock = 0;
    pthread_getcpuclockid(pthread_self(), &clock);
    clock_ = clock;
  }
  phase_.store(kWorking, std::memory_order_release);
}

void ProcessorLoan::end() {
  uint32_t phase = kWorking;
  if (phase_.compare_exchange_strong(phase, kDone, std::memory_order_acq_rel)) return;
  while (phase == kMoving) {  // the lender is about to say what it did
    phase_.wait(kMoving, std::memory_order_acquire);
    phase = phase_.load(std::memory_order_acquire);
  }
  if (phase == kLent) {
    // The lender wants its processor back now, not when the system next divides the threads among them.
    cpu_set_t others = home_;
    CPU_CLR(static_cast<size_t>(lender_), &others);
    if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
    sched_setaffinity(0, sizeof home_, &home_);
  }
  phase_.store(kDone, std::memory_order_release);
}

ProcessorLoan::State ProcessorLoan::look() {
  if (phase_.load(std::memory_order_acquire) != kWorking) return State::Done;
  timespec t = {};
  if (clock_gettime(clock_, &t) != 0) return State::Done;
  // Two looks cost more than the nanosecond in which this clock counts: it stands still for a thread without a processor only.
  const int64_t used = int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  return seen_.exchange(used, std::memory_order_relaxed) == used ? State::Starved : State::Running;
}

bool ProcessorLoan::lend() {
  uint32_t phase = kWorking;
  if (!phase_.compare_exchange_strong(phase, kMoving, std::memory_order_acq_rel)) return false;
  phase = kWorking;
  lender_ = sched_getcpu();
  if (lender_ >= 0 && lender_ < CPU_SETSIZE && sched_getaffinity(id_, sizeof home_, &home_) == 0 &&
      CPU_ISSET(static_cast<size_t>(lender_), &home_)) {
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(static_cast<size_t>(lender_), &here);
    if (sched_setaffinity(id_, sizeof here, &here) == 0) phase = kLent;
  }
  phase_.store(phase, std::memory_order_release);
  phase_.notify_all();
  return phase == kLent;
}

}  // namespace galley
