// The queue of the processor on which exchanges with other processes run beside its kernels: a thread of its own, which begins with the first
// exchange. All else works at once, so that a job may begin as soon as those before it are done.
#pragma once

#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "galley/cpp/plugin.hpp"

namespace galley::cpu {

/// One thread puts and waits.
class ExchangeQueue {
 public:
  using Job = std::function<void()>;

  ExchangeQueue() = default;
  ExchangeQueue(const ExchangeQueue&) = delete;
  ExchangeQueue& operator=(const ExchangeQueue&) = delete;
  /// Waits for the job that is running; those after it are left out.
  ~ExchangeQueue() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  /// After a job has failed, those after it are left out: they would exchange something else than what others expect.
  void put(Job job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    ++put_;
    if (!thread_.joinable()) start();
    changed_.notify_all();
  }
  /// Returns how many jobs were put.
  uint64_t count() const { return put_; }
  /// Waits until so many of them are done. Throws what the first that failed has thrown.
  void wait(uint64_t jobs) {
    if (jobs == 0) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= jobs || failed_; });
    if (failed_) throw *failed_;
  }

 private:
  /// Signals that are meant for the program go to the thread that handles them; a fault stays with the thread that made it.
  void start() {
    sigset_t all, before;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { work(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stops_ || !jobs_.empty(); });
      if (stops_) return;
      const Job job = std::move(jobs_.front());
      jobs_.pop_front();
      const bool runs = !failed_;
      lock.unlock();
      std::optional<sdk::Failure> failure;
      try {
        if (runs) job();
      } catch (const sdk::Failure& thrown) {
        failure = thrown;
      } catch (const std::exception& thrown) {
        failure.emplace(GALLEY_FAILED, thrown.what());
      } catch (...) {
        failure.emplace(GALLEY_FAILED, "an exception of unknown type");
      }
      lock.lock();
      if (failure) failed_ = std::move(failure);
      ++done_;
      changed_.notify_all();
    }
  }

  uint64_t put_ = 0;
  std::mutex mutex_;  // of all that follows but the thread
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::optional<sdk::Failure> failed_;
  uint64_t done_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace galley::cpu
