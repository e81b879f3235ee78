// The device "discrete": the processor again (its target says "cpu", so that the processor's kernels run on it) after the walls of a
// graphics card: memory that the host cannot touch, memory for copies, a file, a queue for copies each way, and one for exchanges. See memory.hpp, work.hpp
// and sdk/emulated/device/queues.hpp.
#include <memory>

#include "../../../models/devices/cpu/machine.hpp"
#include "work.hpp"

namespace galley::discrete {
namespace {

/// What a device does, unless a capture is under way: then it is recorded, to be done at each replay.
class Capturing {
 public:
  explicit Capturing(const galley_target& target) : work(target) {}

  Device work;

  using Call = std::function<void(Device&)>;
  using Calls = std::vector<Call>;

  void make(Call call) {
    if (recording_) recording_->push_back(std::move(call));
    else call(work);
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
    for (const Call& call : calls) call(work);
  }
  void not_captured(const char* call) const {
    if (recording_) sdk::invalid(std::string(call) + " cannot be captured");
  }

 private:
  std::unique_ptr<Calls> recording_;
};

Capturing& of(void* device) { return *static_cast<Capturing*>(device); }

constexpr galley_queue_info kCompute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0};
constexpr galley_queue_info kIn = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_IN, 0, 0};
constexpr galley_queue_info kOut = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_OUT, 0, 0};
constexpr galley_queue_info kExchange = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_EXCHANGE, 0, 0};
constexpr const galley_queue_info* kQueueInfos[] = {&kCompute, &kIn, &kOut, &kExchange};

constexpr double kFileBandwidth = 2e9;  // bytes a second: a disk of flash memory
constexpr double kNetworkBandwidth = 1.25e10;

galley_status describe(void*, galley_target* out, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    cpu::describe(out);
    static const std::array<galley_target_memory, kClasses> memories = [] {
      std::array<galley_target_memory, kClasses> all;
      for (uint32_t i = 0; i < kClasses; ++i) all[i] = cpu::described_memory(kClassNames[i], i == kDevice);
      all[kFile].capacity = 0;
      all[kFile].in_bandwidth = all[kFile].out_bandwidth = kFileBandwidth;
      return all;
    }();
    static const galley_target_memory* const pointers[] = {&memories[0], &memories[1], &memories[2]};
    static const galley_link link = [] {
      galley_link all = sdk::fresh<galley_link>();
      all.name = "network";
      all.bandwidth = kNetworkBandwidth;
      all.latency = 1e-6;
      return all;
    }();
    static const galley_link* const links[] = {&link};
    galley_target target = sdk::read(out);
    target.links = links;
    target.n_links = 1;
    target.memories = pointers;
    target.n_memories = kClasses;
    galley_assign(out, &target);
  });
}
galley_status open(void*, const galley_device_options* options, void** device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *device = new Capturing(*options->target); });
}

constexpr galley_memory_class memory_class(uint32_t memory, int64_t alignment, uint64_t flags) {
  return {sizeof(galley_memory_class), 1, kClassNames[memory], alignment, flags};
}

constexpr galley_memory_class kMemories[] = {memory_class(kDevice, 64, GALLEY_MEMORY_COMPUTES),
                                             memory_class(kPinned, 64, GALLEY_MEMORY_HOST_ACCESS), memory_class(kFile, 64, 0)};
constexpr const galley_memory_class* kMemoryPointers[] = {&kMemories[0], &kMemories[1], &kMemories[2]};

const galley_device kTable = [] {
  galley_device d = sdk::fresh<galley_device>();
  d.kind = "discrete";
  d.memories = kMemoryPointers;
  d.n_memories = kClasses;
  d.describe = describe;
  d.open = open;
  d.queues = kQueueInfos;
  d.n_queues = kQueues;
  d.close = [](void* device) noexcept { delete &of(device); };
  d.allocate = [](void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
    return sdk::guard(error, [&] { *out = of(device).work.memory.allocate(memory, bytes); });
  };
  d.release = [](void* device, uint32_t memory, void*, int64_t) noexcept { of(device).work.memory.release(memory); };
  d.launch = [](void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).make([=](Device& work) { work.launch(queue, *kernel, state); }); });
  };
  d.copy = [](void* device, uint32_t queue, const galley_copy* copy, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).make([queue, copy = sdk::read(copy)](Device& work) { work.copy(queue, copy); }); });
  };
  d.record = [](void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).make([=](Device& work) { work.record(queue, event); }); });
  };
  d.wait = [](void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
    return sdk::guard(error, [&] { of(device).make([=](Device& work) { work.wait(queue, event); }); });
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
  d.end_capture = [](void* device, galley_capture** out, galley_error* error) noexcept {
    return sdk::guard(error, [&] { *out = reinterpret_cast<galley_capture*>(of(device).end_capture()); });
  };
  d.replay = [](void* device, galley_capture* run, galley_error* error) noexcept {
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
  d.discard = [](void*, galley_capture* run) noexcept { delete reinterpret_cast<Capturing::Calls*>(run); };
  return d;
}();
const bool registered = sdk::add(&kTable);

}  // namespace
}  // namespace galley::discrete

GALLEY_PLUGIN("discrete", "1.0.0");
