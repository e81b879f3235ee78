// A thread that waits for another gives it its processor, when the system has given the other's to a different program. Without this,
// both wait for the milliseconds of that program's turn, and a processor stands idle or falls to the program as well.
//
// Measured on two cores (tests/bench/threads.py, medians of 3 rounds), in ms a step, without | with:
//                                alone          beside 1 busy program    beside 2
//     quickstart               71.5 |  70.8        591.4 |  106.6       192.1 |  146.8
//     GPT-2 124M, B=4 T=64    853.9 | 792.6       3118.4 | 1157.6      2153.7 | 1700.4
// With it, a step takes .97 to 1.07 times as long as its fair share of the processors allows.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <ctime>

namespace galley {

/// One thread that others wait for. It says when they do. A waiting thread looks whether it gets processor time, and if not, lends it its
/// own processor.
class ProcessorLoan {
 public:
  /// Others may wait for the calling thread from here on. Which thread that is may change from one begin() to the next.
  void begin();
  /// No longer. A thread that works on a borrowed processor leaves it, and returns from here once the system lets it run where it was
  /// before; the processors on which it may run are what they were. [its own thread]
  void end();

  enum class State { Done, Running, Starved };
  /// Done outside of begin() and end(). Starved: it has had no processor time since the last look, whoever took it. [thread-safe]
  State look();

  /// Moves the thread to the processor of the caller, who should sleep next. False where it is not to be moved: it is done, was moved
  /// before, or may not run there. [thread-safe, another thread]
  bool lend();

 private:
  enum Phase : uint32_t { kDone, kWorking, kMoving, kLent };

  std::atomic<uint32_t> phase_ = kDone;
  std::atomic<int64_t> seen_ = -1;  ///< the processor time of the last look, in ns
  std::atomic<clockid_t> clock_ = 0;
  pid_t id_ = 0;
  cpu_set_t home_ = {};  ///< kLent: where it may run
  int lender_ = 0;       ///< kLent: the processor that it got
};

}  // namespace galley
