// Bytes of the host that all ranks tell each other, through memory of the GPU and NCCL.
#pragma once

#include <algorithm>
#include <cstring>

#include "ranks.hpp"

namespace galley::nccl {

/// The GPU of this process, as the driver has it, with a stream and some memory of its own: (ranks, piece) bytes.
class Gpu {
 public:
  static constexpr int64_t kPiece = 1 << 20, kAll = 32 << 20;  ///< bytes: of a rank at a time, and of all ranks at most

  /// The one GPU that this process sees, or that of its number among the processes of this machine.
  Gpu(const Driver& driver, int64_t local_rank) : driver_(driver) {
    int count = 0;
    driver_.check(driver_.device_count(&count), "cuDeviceGetCount");
    number_ = count == 1 ? 0 : static_cast<int>(local_rank);
    if (number_ >= count)
      sdk::invalid("this is process " + std::to_string(local_rank + 1) + " on this machine, where " + std::to_string(count) +
                       " GPUs are seen: each process needs one",
                   "start at most as many processes on a machine as it has GPUs; CUDA_VISIBLE_DEVICES says which are seen");
    driver_.check(driver_.device_get(&device_, number_), "cuDeviceGet");
    driver_.check(driver_.context_retain(&context_, device_), "cuDevicePrimaryCtxRetain");
    try {
      use();
      driver_.check(driver_.stream_create(&stream_, kNonBlocking), "cuStreamCreate");
    } catch (...) {
      release();
      throw;
    }
  }
  ~Gpu() { release(); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  int number() const { return number_; }
  /// Makes it the current one of the calling thread.
  void use() const { driver_.check(driver_.context_set(context_), "cuCtxSetCurrent"); }

  /// all[r * bytes] … is what rank r gave.
  void exchange(Ranks& ranks, const void* mine, int64_t bytes, void* all) {
    const int64_t n = ranks.ranks(), most = std::min(kPiece, kAll / n);
    use();
    if (!memory_) driver_.check(driver_.allocate(&memory_, static_cast<size_t>(n * most)), "cuMemAlloc");
    for (int64_t done = 0; done < bytes; done += most) {
      const int64_t size = std::min(most, bytes - done);
      const auto one = static_cast<size_t>(size);
      const DeviceAddress own = memory_ + static_cast<DeviceAddress>(ranks.rank() * size);
      driver_.check(driver_.copy_in(own, static_cast<const char*>(mine) + done, one, stream_), "cuMemcpyHtoDAsync");
      ranks.group("ncclAllGather", [&](const Library& nccl, Comm comm) {
        return nccl.all_gather(reinterpret_cast<const void*>(own), reinterpret_cast<void*>(memory_), one, kUint8, comm, stream_);
      });
      wait(ranks);
      auto* const to = static_cast<char*>(all) + done;
      if (size == bytes) driver_.check(driver_.copy_out(to, memory_, one * static_cast<size_t>(n)), "cuMemcpyDtoH");
      else
        for (int64_t r = 0; r < n; ++r)
          driver_.check(driver_.copy_out(to + r * bytes, memory_ + static_cast<DeviceAddress>(r * size), one), "cuMemcpyDtoH");
    }
  }

 private:
  /// Returns when the stream has done its work: a wait by the driver would not end where a rank never comes. After abort(), NCCL's work
  /// ends, too, with any numbers: so the communicator is looked at last.
  void wait(Ranks& ranks) const {
    for (Patience patience;; patience.wait()) {
      const int state = driver_.stream_query(stream_);
      ranks.check();
      if (state == 0) return;
      if (state != kNotReady) driver_.check(state, "cuStreamQuery");
    }
  }
  void release() noexcept {
    (void)driver_.context_set(context_);
    if (memory_) (void)driver_.free(memory_);
    if (stream_) (void)driver_.stream_destroy(stream_);
    (void)driver_.context_release(device_);
  }

  const Driver& driver_;
  int number_ = 0, device_ = 0;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  DeviceAddress memory_ = 0;
};

}  // namespace galley::nccl
