// Threads that do the blocks of one piece of work after the other. Blocks are claimed as threads come free, so that a thread whose
// processor another program has taken holds up one block and not its share; a thread that waits spins for some microseconds, lends its
// processor to one that has a block and no processor, and sleeps. OpenMP does neither: its threads spin away the time that a busy program
// then lacks, and a static split waits for the thread that has lost its processor. processor_loan.hpp has the times of steps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "host/base/processor_loan.hpp"

namespace galley {

class Pool {
 public:
  /// `threads` (at least 1) counts the one that calls run(); the others start with the first run of two blocks or more. Where the system
  /// gives fewer, those it gives do the work.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// fn(context, i) once for each i in [0, blocks), in any order and on any thread; returns when all are done. If blocks throw, the
  /// exception of the lowest i is thrown here. A call from a block, or while another thread's is under way, does all of its blocks on the
  /// calling thread. Allocates nothing, except when threads start. [thread-safe]
  void run(int64_t blocks, void (*fn)(void* context, int64_t block), void* context);

 private:
  using Clock = std::chrono::steady_clock;

  /// A thread's own run of blocks, which the others take from when theirs is done: alone, a thread meets the same rows in kernel after
  /// kernel and finds them in its cache.
  struct alignas(128) Share {
    std::atomic<uint64_t> open = 0;  ///< generation << 40 | blocks that nobody has claimed
    int64_t end = 0;                 ///< after its last block
    ProcessorLoan thread;            ///< waited for while it may have blocks
  };

  void start();
  void work(size_t own);
  void take(size_t own);
  bool claim(Share& share, int64_t& block);
  void call(int64_t block) noexcept;
  void finish(int64_t done);
  void wait(std::atomic<uint32_t>& word, uint32_t old, std::atomic<uint32_t>& sleepers, size_t own);
  bool others_run(size_t own);

  size_t wanted_;
  bool spins_;
  std::vector<std::thread> threads_;
  std::unique_ptr<Share[]> shares_;
  std::atomic<size_t> count_ = 1;  ///< of shares: the threads that there are
  std::atomic_flag busy_;

  // The work under way. Written by run() while nobody has a block; read by those who have one.
  void (*fn_)(void*, int64_t) = nullptr;
  void* context_ = nullptr;
  int64_t blocks_ = 0;
  uint32_t number_ = 0;

  alignas(128) std::atomic<uint32_t> generation_ = 0;  ///< the number of the last work that was begun
  std::atomic<uint32_t> idle_ = 0;                     ///< threads asleep until it changes
  alignas(128) std::atomic<uint32_t> finished_ = 0;    ///< the number of the last work that was done
  std::atomic<uint32_t> caller_asleep_ = 0;
  alignas(128) std::atomic<int64_t> done_ = 0;  ///< blocks of the work under way

  std::atomic_flag failing_;  ///< guards what follows
  std::exception_ptr failure_;
  int64_t failed_ = 0;
  std::atomic<bool> stop_ = false;
};

}  // namespace galley
