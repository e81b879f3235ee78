#include "host/data/loader.hpp"

#include <algorithm>
#include <cassert>
#include <string>
#include <system_error>

#include "host/base/ordered.hpp"

namespace galley {

Result<std::unique_ptr<Loader>> Loader::start(const Source& source, const BatchLayout& layout, int64_t most_micro_batches, int64_t first,
                                              int64_t end, std::span<std::byte> memory, int64_t held) {
  assert(memory.size() >= bytes(layout, most_micro_batches, held));
  assert(reinterpret_cast<uintptr_t>(memory.data()) % BatchLayout::kAlignment == 0);
  std::unique_ptr<Loader> loader(new Loader(source, first, end, held));
  const uint64_t one = window_bytes(layout, most_micro_batches);
  for (size_t i = 0; i < loader->buffers_.size(); ++i) loader->buffers_[i] = {.layout = layout, .memory = memory.subspan(i * one, one)};
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
    // A buffer's last window must have been given back.
    changed_.wait(lock, [&] { return stop_ || filled_ < oldest_ + static_cast<int64_t>(buffers_.size()); });
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
  oldest_ = std::max(oldest_, next_ - held_ + 1);
  changed_.notify_all();
  if (next_ >= end_)
    return run_error("the loader was asked for window " + std::to_string(next_) + ", but the last is " + std::to_string(end_ - 1));
  changed_.wait(lock, [&] { return next_ < filled_ || !failure_.ok(); });
  if (next_ == filled_) return failure_.error();
  return &buffer_of(next_++);
}

}  // namespace galley
