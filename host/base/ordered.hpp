// Runs work on a stream of items on several threads, and takes the results in the order of the items: they do not depend on the threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Returns how many threads this process may use at once; at least 1.
size_t usable_threads();

/// Returns the exception that is being handled as an error: for threads, for which nothing else catches, and for callers that still have
/// threads to join.
Error error_of_exception();

/// Returns what `call()` returns, a Status or a Result; an error if it throws.
template <class Call>
auto guarded(const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (...) {
    return error_of_exception();
  }
}

/// Calls `body(thread)` on threads 0 … count − 1. Destroyed, it calls `stop` and joins them.
template <class Stop>
class JoinedThreads {
 public:
  explicit JoinedThreads(Stop stop) : stop_(std::move(stop)) {}
  ~JoinedThreads() {
    stop_();
    for (std::thread& thread : threads_) thread.join();
  }
  JoinedThreads(const JoinedThreads&) = delete;
  JoinedThreads& operator=(const JoinedThreads&) = delete;

  template <class Body>
  Status start(size_t count, const Body& body) {
    threads_.reserve(count);
    try {
      for (size_t t = 0; t < count; ++t) threads_.emplace_back(body, t);
    } catch (const std::system_error& error) {
      return run_error("cannot start a thread: " + error.code().message());
    }
    return ok();
  }

 private:
  Stop stop_;
  std::vector<std::thread> threads_;
};

/// Runs for every item: `produce(Item&) -> Result<bool>` (false: there is no further one) fills it in, `work(Item&, size_t thread) ->
/// Status` turns it into its result on some thread 0 … threads − 1, `consume(Item&) -> Status` takes it. produce and consume are called by
/// the calling thread, in order; items are used again. At most 2 · threads + 1 items are there at once, which bounds the memory. The first
/// error in the order of the items ends it all, after the work that is under way. Exceptions of all three are errors.
template <class Item, class Produce, class Work, class Consume>
Status in_order(size_t threads, const Produce& produce, const Work& work, const Consume& consume) {
  if (threads <= 1) {
    return guarded([&]() -> Status {
      Item item;
      while (TRY(produce(item))) {
        TRY_STATUS(work(item, 0));
        TRY_STATUS(consume(item));
      }
      return ok();
    });
  }

  // Apart from each other, so that threads which write into neighbours do not share a cache line, nor the pair that is fetched with it.
  struct alignas(128) Slot {
    Item item;
    Status status;
    bool done = false;
  };
  return guarded([&]() -> Status {
    std::vector<Slot> slots(2 * threads + 1);
    std::mutex mutex;  // guards what follows, and Slot::done
    std::condition_variable work_there, work_done;
    size_t made = 0, begun = 0, taken = 0;
    bool stop = false;
    const auto run = [&](size_t thread) {
      std::unique_lock lock(mutex);
      while (true) {
        work_there.wait(lock, [&] { return stop || begun < made; });
        if (stop) return;
        Slot& slot = slots[begun++ % slots.size()];
        lock.unlock();
        Status status = guarded([&] { return work(slot.item, thread); });
        lock.lock();
        slot.status = std::move(status);
        slot.done = true;
        work_done.notify_one();
      }
    };
    JoinedThreads workers([&] {
      {
        const std::lock_guard lock(mutex);
        stop = true;
      }
      work_there.notify_all();
    });
    TRY_STATUS(workers.start(threads, run));
    for (bool more = true; more || taken < made;) {
      if (more && made - taken < slots.size()) {
        Slot& slot = slots[made % slots.size()];
        more = TRY(produce(slot.item));
        if (!more) continue;
        const std::lock_guard lock(mutex);
        slot.done = false;
        ++made;
        work_there.notify_one();
        continue;
      }
      Slot& slot = slots[taken % slots.size()];
      {
        std::unique_lock lock(mutex);
        work_done.wait(lock, [&] { return slot.done; });
      }
      TRY_STATUS(slot.status);
      TRY_STATUS(consume(slot.item));
      ++taken;
    }
    return ok();
  });
}

}  // namespace galley
