// Work on a stream of items by several threads, its results taken in the order of the items: what comes out does not depend on the threads.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Threads that this process may use at once; at least 1.
size_t usable_threads();

/// For every item: `produce(Item&) -> Result<bool>` (false: there is no further one) fills it in, `work(Item&, size_t thread) -> Status`
/// turns it into its result on some thread 0 … threads − 1, `consume(Item&) -> Status` takes it. produce and consume are called by the
/// calling thread, in order; items are used again. At most 2 · threads + 1 items are there at once, which bounds the memory. The first
/// error in the order of the items ends it all, after the work that is under way.
template <class Item, class Produce, class Work, class Consume>
Status in_order(size_t threads, const Produce& produce, const Work& work, const Consume& consume) {
  const auto guarded = [&](Item& item, size_t thread) -> Status {
    try {
      return work(item, thread);
    } catch (const std::exception& error) {
      return run_error(std::string("a worker failed: ") + error.what());
    }
  };
  if (threads <= 1) {
    Item item;
    while (TRY(produce(item))) {
      TRY_STATUS(guarded(item, 0));
      TRY_STATUS(consume(item));
    }
    return ok();
  }

  // Apart from each other, so that threads which write into neighbours do not share a cache line, nor the pair that is fetched with it.
  struct alignas(128) Slot {
    Item item;
    Status status;
    bool done = false;
  };
  std::vector<Slot> slots(2 * threads + 1);
  std::mutex mutex;  // guards what follows, and Slot::done
  std::condition_variable work_there, work_done;
  size_t made = 0, begun = 0, taken = 0;
  bool stop = false;
  std::vector<std::thread> workers;
  const auto join = [&] {
    {
      const std::lock_guard lock(mutex);
      stop = true;
    }
    work_there.notify_all();
    for (std::thread& worker : workers) worker.join();
  };
  const auto run = [&](size_t thread) {
    std::unique_lock lock(mutex);
    while (true) {
      work_there.wait(lock, [&] { return stop || begun < made; });
      if (stop) return;
      Slot& slot = slots[begun++ % slots.size()];
      lock.unlock();
      Status status = guarded(slot.item, thread);
      lock.lock();
      slot.status = std::move(status);
      slot.done = true;
      work_done.notify_one();
    }
  };
  const auto drive = [&]() -> Status {
    for (size_t t = 0; t < threads; ++t) workers.emplace_back(run, t);
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
  };
  Status status;
  try {
    status = drive();
  } catch (const std::system_error& error) {
    status = run_error(std::string("cannot start a thread: ") + error.code().message());
  }
  join();
  return status;
}

}  // namespace galley
