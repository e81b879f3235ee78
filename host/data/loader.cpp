#include "host/data/loader.hpp"

#include <cassert>
#include <string>
#include <system_error>

#include "host/base/ordered.hpp"

namespace galley {

Result<std::unique_ptr<Loader>> Loader::start(const Source& source, const BatchLayout& layout, int64_t most_micro_batches, int64_t first,
                                              int64_t end, std::span<std::byte> memory) {
  assert(memory.size() >= bytes(layout, most_micro_batches));
  assert(reinterpret_cast<uintptr_t>(memory.data()) % BatchLayout::kAlignment == 0);
  std::unique_ptr<Loader> loader(new Loader(source, first, end));
  const uint64_t one = window_bytes(layout, most_micro_batches);
  for (size_t i = 0; i < kBuffers; ++i) loader->buffers_[i] = {.layout = layout, .memory = memory.subspan(i * one, one)};
  try {
    loader->thread_ = std::thread([raw = loader.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return run_error(std::string("cannot start the loader's thread: ") + error.code().message());
  }
  return loader;
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Loader::run() {
  std::unique_lock lock(mutex_);
  while (filled_ < end_) {
    // The buffer of window w was that of w − 2, which must have been given back.
    changed_.wait(lock, [&] { return stop_ || filled_ < (in_hand_ >= 0 ? in_hand_ : next_) + kBuffers; });
    if (stop_) return;
    const int64_t window = filled_;
    lock.unlock();
    Status status = guarded([&] { return source_.fill(window, buffer_of(window)); });
    lock.lock();
    if (!status.ok()) {
      failure_ = std::move(status);
      changed_.notify_all();
      return;
    }
    ++filled_;
    changed_.notify_all();
  }
}

Result<const WindowBuffer*> Loader::next() {
  std::unique_lock lock(mutex_);
  in_hand_ = -1;
  changed_.notify_all();
  if (next_ >= end_)
    return run_error("the loader was asked for window " + std::to_string(next_) + ", but the last is " + std::to_string(end_ - 1));
  changed_.wait(lock, [&] { return next_ < filled_ || !failure_.ok(); });
  if (next_ == filled_) return failure_.error();
  in_hand_ = next_++;
  return &buffer_of(in_hand_);
}

}  // namespace galley
