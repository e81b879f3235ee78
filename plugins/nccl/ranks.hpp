// What galley_ranks.open makes, for the plugin's own library and for its kernels: the processes of a run, and their communicator.
//
// The communicator does not block: a call that begins work may return before NCCL has put it on the stream, and nothing else may be asked
// of the communicator until it has. So whoever begins work waits for that here, without a lock, and another thread may abort meanwhile.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <utility>

#include "galley/cpp/exchange.hpp"
#include "library.hpp"

namespace galley::nccl {

using sdk::Patience;

/// One thread uses it, but for check() and abort(). It owns the communicator.
class Ranks {
 public:
  Ranks() = default;  ///< one rank, which touches no NCCL
  Ranks(const Library& library, int rank, int ranks) : library_(&library), rank_(rank), ranks_(ranks) {}
  /// The number of the GPU, as CUDA counts those that this process sees.
  void set_gpu(int gpu) { gpu_ = gpu; }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  const Library* library() const { return library_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  int gpu() const { return gpu_; }

  /// Begins to make the communicator; wait() until it is there. The GPU is the calling thread's current one.
  void begin(const UniqueId& id) {
    Config config;
    config.blocking = 0;
    const std::lock_guard lock(mutex_);
    const int result = library_->comm_init(&comm_, ranks_, id, rank_, &config);
    if (result != kSuccess && result != kInProgress) fail_locked("ncclCommInitRankConfig", result);
  }

  /// Asks NCCL for all that `calls(library, communicator)` asks, which returns the first bad result, as one group. Returns when it is on the
  /// streams. Throws what NCCL says; after it, nothing of the run can go on here.
  template <class Calls>
  void group(const char* what, const Calls& calls) {
    int result = kSuccess;
    {
      const std::lock_guard lock(mutex_);
      need_locked();
      result = library_->group_start();
      if (result == kSuccess) {
        const int asked = calls(*library_, comm_);
        const int ended = library_->group_end();
        result = asked != kSuccess && asked != kInProgress ? asked : ended;
      }
      if (result != kSuccess && result != kInProgress) fail_locked(what, result);
    }
    if (result == kInProgress) settle(what, [] {});
  }

  /// Returns when NCCL has done what it was asked for. Throws as group() does. `meanwhile` may throw.
  template <class Meanwhile>
  void settle(const char* what, const Meanwhile& meanwhile) {
    for (Patience patience;; patience.wait()) {
      {
        const std::lock_guard lock(mutex_);
        need_locked();
        const int result = state_locked();
        if (result == kSuccess) return;
        if (result != kInProgress) fail_locked(what, result);
      }
      meanwhile();
    }
  }

  /// Throws if the communicator has an error, or is gone. [thread-safe]
  void check() {
    const std::lock_guard lock(mutex_);
    need_locked();
    const int result = state_locked();
    if (result != kSuccess && result != kInProgress) fail_locked("NCCL", result);
  }
  /// Ends all waiting for other ranks, on the GPU too. What runs there comes to its end, with any numbers. [thread-safe]
  void abort() {
    if (const Comm comm = take()) (void)library_->comm_abort(comm);
  }
  /// All ranks call it, when nothing is on their streams; a rank that does not come is waited for so long.
  void close(std::chrono::seconds longest) {
    const Comm comm = take();
    if (!comm) return;
    int result = failed_ ? kSystemError : library_->comm_finalize(comm);
    const auto end = std::chrono::steady_clock::now() + longest;
    for (Patience patience; result == kInProgress && std::chrono::steady_clock::now() < end; patience.wait()) {
      int state = kSuccess;
      const int asked = library_->async_error(comm, &state);
      result = asked == kSuccess ? state : asked;
    }
    (void)(result == kSuccess ? library_->comm_destroy(comm) : library_->comm_abort(comm));
  }

 private:
  Comm take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(comm_, nullptr);
  }
  void need_locked() const {
    if (!comm_) throw sdk::Failure(GALLEY_LOST, "NCCL's communicator has been aborted");
    if (failed_) throw sdk::Failure(GALLEY_LOST, "NCCL has failed before");
  }
  int state_locked() const {
    int state = kSuccess;
    const int asked = library_->async_error(comm_, &state);
    return asked == kSuccess ? state : asked;
  }
  /// A rank that is gone closes its connections, which NCCL calls an error of the system or of a remote process.
  [[noreturn]] void fail_locked(const char* what, int result) {
    failed_ = true;
    const bool lost = result == kSystemError || result == kRemoteError;
    throw sdk::Failure(lost ? GALLEY_LOST : GALLEY_FAILED, library_->text(what, result, comm_));
  }

  const Library* library_ = nullptr;
  int rank_ = 0, ranks_ = 1, gpu_ = 0;
  std::mutex mutex_;  ///< of the communicator: held during calls, which return at once
  Comm comm_ = nullptr;
  std::atomic<bool> failed_ = false;
};

}  // namespace galley::nccl
