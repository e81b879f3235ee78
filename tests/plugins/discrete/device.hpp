// The functions of the device "discrete", and of others like it: memory.hpp and work.hpp behind the table of galley/device.h, with capture.
#pragma once

#include <memory>

#include "work.hpp"

namespace galley::discrete {

/// What a device does, unless a capture is under way: then it is recorded, to be done at each replay.
class Capturing {
 public:
  explicit Capturing(const galley_target& target) : work(target) {}
  virtual ~Capturing() = default;
  Capturing(const Capturing&) = delete;
  Capturing& operator=(const Capturing&) = delete;

  Device work;

  struct Call {
    enum class Kind { Put, Record, Wait } kind;
    uint32_t queue;
    uint32_t event;
    Job job;
  };
  using Calls = std::vector<Call>;

  void make(const Call& call) {
    if (recording_) return recording_->push_back(call);
    switch (call.kind) {
      case Call::Kind::Put: return work.put(call.queue, call.job);
      case Call::Kind::Record: return work.record(call.queue, call.event);
      case Call::Kind::Wait: return work.wait(call.queue, call.event);
    }
  }
  void capture() {
    if (recording_) sdk::invalid("a capture is under way");
    recording_ = std::make_unique<Calls>();
  }
  Calls* end_capture() {
    if (!recording_) sdk::invalid("no capture is under way");
    return recording_.release();
  }
  void replay(const Calls& calls) {
    not_captured("replay");
    for (const Call& call : calls) make(call);
  }
  void not_captured(const char* call) const {
    if (recording_) sdk::invalid(std::string(call) + " cannot be captured");
  }

 private:
  std::unique_ptr<Calls> recording_;
};

inline Capturing& of(void* device) { return *static_cast<Capturing*>(device); }

constexpr galley_queue_info kCompute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0};
constexpr galley_queue_info kIn = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_IN, 0, 0};
constexpr galley_queue_info kOut = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_OUT, 0, 0};
constexpr const galley_queue_info* kQueueInfos[] = {&kCompute, &kIn, &kOut};

/// The device's table, without `kind`, its memories, `describe` and `open`, whose handle is a Capturing.
inline galley_device device_table() {
  galley_device d = sdk::fresh<galley_device>();
  d.queues = kQueueInfos;
  d.n_queues = kQueues;
  d.close = [](void* device) noexcept { delete &of(device); };
  d.allocate = [](void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
    return sdk::guard(error, [&] { *out = of(device).work.memory.allocate(memory, bytes); });
  };
  d.release = [](void* device, uint32_t memory, void*, int64_t) noexcept { of(device).work.memory.release(memory); };
  d.launch = [](void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      of(device).make({Capturing::Call::Kind::Put, queue, 0, {.kind = Job::Kind::Launch, .kernel = kernel, .state = state}});
    });
  };
  d.copy = [](void* device, uint32_t queue, const galley_copy* copy, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).make({Capturing::Call::Kind::Put, queue, 0, {.kind = Job::Kind::Copy, .copy = *copy}}); });
  };
  d.record = [](void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).make({Capturing::Call::Kind::Record, queue, event, {}}); });
  };
  d.wait = [](void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).make({Capturing::Call::Kind::Wait, queue, event, {}}); });
  };
  d.await = [](void* device, uint32_t event, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      of(device).not_captured("await");
      of(device).work.await(event);
    });
  };
  d.synchronize = [](void* device, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      of(device).not_captured("synchronize");
      of(device).work.synchronize();
    });
  };
  d.capture = [](void* device, galley_error* error) noexcept { return sdk::guard(error, [&] { of(device).capture(); }); };
  d.end_capture = [](void* device, galley_run** out, galley_error* error) noexcept {
    return sdk::guard(error, [&] { *out = reinterpret_cast<galley_run*>(of(device).end_capture()); });
  };
  d.replay = [](void* device, galley_run* run, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).replay(*reinterpret_cast<const Capturing::Calls*>(run)); });
  };
  d.mark = [](void* device, uint32_t queue, uint32_t mark, galley_error* error) noexcept {
    return sdk::guard(error, [&] {
      of(device).not_captured("mark");
      of(device).work.mark(queue, mark);
    });
  };
  d.time = [](void* device, uint32_t mark, double* seconds, galley_error* error) noexcept {
    return sdk::guard(error, [&] { *seconds = of(device).work.time(mark); });
  };
  d.discard = [](void*, galley_run* run) noexcept { delete reinterpret_cast<Capturing::Calls*>(run); };
  return d;
}

constexpr galley_memory_class memory_class(uint32_t memory, int64_t alignment, bool host_access, bool computes) {
  return {sizeof(galley_memory_class), 1, kClassNames[memory], alignment, host_access, computes, 0};
}

}  // namespace galley::discrete
