// A device that works at once: a launch returns when the kernel is done, a copy when the bytes are there. Only exchanges with other processes
// may run beside that, on a queue of their own: events and synchronize() wait for those. Kernels compute in memory class 0. Header-only, as
// machine.hpp is.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "arena.hpp"
#include "exchange_queue.hpp"
#include "machine.hpp"

namespace galley::cpu {

/// `Kind` says what the device is called (`kind`), and its memory classes (`memories`, an array of names).
template <class Kind>
class DeviceAtOnce {
 public:
  static constexpr galley_device table() {
    galley_device d = sdk::fresh<galley_device>();
    d.kind = Kind::kind;
    d.memories = kMemoryPointers.data();
    d.queues = kQueues;
    d.n_memories = kClasses;
    d.n_queues = 2;
    d.describe = describe_machine;
    d.open = open;
    d.close = close;
    d.allocate = allocate;
    d.release = release;
    d.launch = launch;
    d.copy = copy;
    d.record = record;
    d.wait = wait;
    d.await = await;
    d.synchronize = synchronize;
    d.mark = mark;
    d.time = time;
    d.flags = GALLEY_DEVICE_SYNCHRONOUS;
    return d;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr uint32_t kClasses = Kind::memories.size();
  static constexpr int64_t kCopyBlock = int64_t{1} << 20;
  static constexpr uint32_t kExchangeQueue = 1;

  char queue_ = 0;  ///< its address stands for the queue
  ExchangeQueue exchanges_;
  std::vector<uint64_t> events_;  ///< of exchanges, how many are before the event
  std::array<std::byte*, kClasses> arenas_ = {};
  std::vector<Clock::time_point> marks_;

  static DeviceAtOnce& of(void* device) { return *static_cast<DeviceAtOnce*>(device); }

  static galley_status describe_machine(void*, galley_target* out, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      describe(out);
      static const std::array<galley_target_memory, kClasses> memories = [] {
        std::array<galley_target_memory, kClasses> all;
        for (uint32_t i = 0; i < kClasses; ++i) all[i] = described_memory(Kind::memories[i], i == 0);
        return all;
      }();
      static const std::array<const galley_target_memory*, kClasses> pointers = pointers_to(memories);
      galley_target target = sdk::read(out);
      target.memories = pointers.data();
      target.n_memories = kClasses;
      galley_assign(out, &target);
    });
  }

  static galley_status open(void*, const galley_device_options* given, void** device, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      const galley_device_options options = sdk::read(given);
      if (!galley_same_text(options.target->device, "cpu"))
        sdk::invalid(std::string("this is the device '") + Kind::kind + "', which is the processor; the target is for '" +
                     options.target->device + "'");
      auto opened = std::make_unique<DeviceAtOnce>();
      opened->marks_.resize(options.n_marks);
      opened->events_.resize(options.n_events + size_t{1});
      *device = opened.release();
    });
  }

  static void close(void* device) noexcept { delete static_cast<DeviceAtOnce*>(device); }

  static galley_status allocate(void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      if (memory >= kClasses || bytes <= 0)
        sdk::invalid("memory class " + std::to_string(memory) + ", " + std::to_string(bytes) + " bytes: there is no such arena");
      *out = allocate_arena(Kind::memories[memory], bytes);
      of(device).arenas_[memory] = static_cast<std::byte*>(*out);
    });
  }

  static void release(void* device, uint32_t memory, void* data, int64_t bytes) noexcept {
    release_arena(data, bytes);
    if (memory < kClasses) of(device).arenas_[memory] = nullptr;
  }

  /// A kernel of C++ may throw whatever its table says; nothing gets past here.
  galley_status run(const galley_kernel* kernel, void* state, galley_error* error) noexcept {
    galley_status status = GALLEY_OK;
    const galley_status thrown =
        sdk::guard(error, [&] { status = kernel->enqueue(state, reinterpret_cast<galley_queue*>(&queue_), error); });
    return thrown != GALLEY_OK ? thrown : status;
  }
  static galley_status launch(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error* error) noexcept {
    DeviceAtOnce& self = of(device);
    if (queue != kExchangeQueue) return self.run(kernel, state, error);
    return sdk::guard(error, [&] {
      self.exchanges_.put([&self, kernel, state] {
        galley_error failed = GALLEY_ERROR_INIT;
        if (const galley_status status = self.run(kernel, state, &failed); status != GALLEY_OK)
          throw sdk::Failure(status, failed.text, failed.hint);
      });
    });
  }

  /// Where one side of a copy lies.
  std::byte* side(uint32_t memory, int64_t offset, const void* address) const {
    if (memory == GALLEY_MEMORY_PROCESS) return static_cast<std::byte*>(const_cast<void*>(address));
    if (memory >= kClasses || !arenas_[memory])
      sdk::invalid("a copy names memory class " + std::to_string(memory) + ", which has no arena");
    return arenas_[memory] + offset;
  }

  static galley_status copy(void* device, uint32_t, const galley_copy* copy, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      sdk::understand(copy);
      std::byte* const target = of(device).side(copy->to_memory, copy->to_offset, copy->to_address);
      const std::byte* const source = of(device).side(copy->from_memory, copy->from_offset, copy->from_address);
      const int64_t bytes = copy->bytes;
      if (bytes < 4 * kCopyBlock || !sdk::host()) {
        std::memcpy(target, source, static_cast<size_t>(bytes));
        return;
      }
      sdk::parallel((bytes + kCopyBlock - 1) / kCopyBlock, [&](int64_t block) {
        const int64_t at = block * kCopyBlock;
        std::memcpy(target + at, source + at, static_cast<size_t>(std::min(kCopyBlock, bytes - at)));
      });
    });
  }

  static galley_status record(void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).events_.at(event) = queue == kExchangeQueue ? of(device).exchanges_.count() : 0; });
  }
  static galley_status wait(void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
    return queue == kExchangeQueue ? GALLEY_OK : await(device, event, error);
  }
  static galley_status await(void* device, uint32_t event, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).exchanges_.wait(of(device).events_.at(event)); });
  }
  static galley_status synchronize(void* device, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).exchanges_.wait(of(device).exchanges_.count()); });
  }

  static galley_status mark(void* device, uint32_t queue, uint32_t number, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      Clock::time_point& at = of(device).marks_.at(number);
      if (queue == kExchangeQueue) of(device).exchanges_.put([&at] { at = Clock::now(); });
      else at = Clock::now();
    });
  }
  static galley_status time(void* device, uint32_t number, double* seconds, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      const auto& marks = of(device).marks_;
      *seconds = std::chrono::duration<double>(marks.at(number) - marks.at(0)).count();
    });
  }

  template <class T>
  static constexpr std::array<const T*, kClasses> pointers_to(const std::array<T, kClasses>& all) {
    std::array<const T*, kClasses> out = {};
    for (uint32_t i = 0; i < kClasses; ++i) out[i] = &all[i];
    return out;
  }

  static constexpr std::array<galley_memory_class, kClasses> kMemories = [] {
    std::array<galley_memory_class, kClasses> all = {};
    for (uint32_t i = 0; i < kClasses; ++i)
      all[i] = {sizeof(galley_memory_class), 1, Kind::memories[i], 64, GALLEY_MEMORY_HOST_ACCESS | (i == 0 ? GALLEY_MEMORY_COMPUTES : 0)};
    return all;
  }();
  static constexpr std::array<const galley_memory_class*, kClasses> kMemoryPointers = pointers_to(kMemories);
  static constexpr galley_queue_info kCompute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0};
  static constexpr galley_queue_info kExchange = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_EXCHANGE, 0, 0};
  static constexpr const galley_queue_info* kQueues[] = {&kCompute, &kExchange};
};

}  // namespace galley::cpu
