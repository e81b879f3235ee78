// The loader: a thread that fills the next window while the session trains on the current one.
//
// It fills buffers in memory that the caller owns: one buffer more than the caller holds windows at a time. Windows come in order, one at a
// time. Between start() and the destructor it allocates nothing, as long as the source does not fail.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "host/base/result.hpp"
#include "host/data/source.hpp"
#include "host/data/window.hpp"

namespace galley {

class Loader {
 public:
  /// Returns the bytes of memory that start() needs, for windows of at most `most_micro_batches`.
  static uint64_t bytes(const BatchLayout& layout, int64_t most_micro_batches, int64_t held = 1) {
    return static_cast<uint64_t>(held + 1) * window_bytes(layout, most_micro_batches);
  }

  /// Starts with window `first` and stops before window `end`. `source` and `memory` (bytes(), aligned to BatchLayout::kAlignment) outlive
  /// the loader. [main-thread]
  static Result<std::unique_ptr<Loader>> start(const Source& source, const BatchLayout& layout, int64_t most_micro_batches, int64_t first,
                                               int64_t end, std::span<std::byte> memory, int64_t held = 1);

  /// Waits for the next window and returns it. The caller holds at most `held` windows: a further call takes the oldest one's buffer back,
  /// and copies from it have to be done by then. An error of the source comes in place of its window, and again with every later call.
  /// Asking for more windows than there are is an error. One thread.
  Result<const WindowBuffer*> next();

  /// Stops after the window that is being filled, if any, and joins the thread.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

 private:
  Loader(const Source& source, int64_t first, int64_t end, int64_t held)
      : source_(source), buffers_(static_cast<size_t>(held + 1)), held_(held), next_(first), filled_(first), oldest_(first), end_(end) {}
  void run();
  WindowBuffer& buffer_of(int64_t window) { return buffers_[static_cast<size_t>(window) % buffers_.size()]; }

  const Source& source_;
  std::vector<WindowBuffer> buffers_;
  const int64_t held_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  int64_t next_;    // the window that next() will hand out
  int64_t filled_;  // windows below this one have been filled
  int64_t oldest_;  // windows below this one have been given back
  const int64_t end_;
  bool stop_ = false;
  Status failure_;  // of window filled_
  std::thread thread_;
};

}  // namespace galley
