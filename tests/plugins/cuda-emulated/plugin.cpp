// The device "cuda-emulated": kernels for CUDA, which the C++ compiler has built over galley/cuda/emulated.hpp, behind the walls of the
// device "discrete" (memory.hpp and work.hpp there): memory that the host cannot touch, and queues that do nothing before they are waited
// for. Its target says "cuda" and "emulated", so that plugins' emulated kernels are chosen.
#include "../discrete/work.hpp"
#include "../../../models/devices/cpu/machine.hpp"
#include "galley/cuda/platform.hpp"

namespace galley::emulated_device {
namespace {

using discrete::Job;
using discrete::kDevice;
using discrete::kPinned;

constexpr uint32_t kClasses = 2;
constexpr int64_t kAlignment = 256;  // as cudaMalloc aligns

/// What `capture` records: calls to make again.
struct Recorded {
  enum class Kind { Put, Record, Wait } kind;
  uint32_t queue;
  Job job;
  uint32_t event;
};
using Recording = std::vector<Recorded>;

class Device final : public cuda::Queue {
 public:
  explicit Device(const galley_target& target) : work(target) {}
  discrete::Device work;

  void upload(void* to, const void* from, size_t bytes) override {
    work.synchronize();
    const discrete::Memory::Access access(work.memory);
    std::memcpy(to, from, bytes);
  }

  void put(uint32_t queue, const Job& job) { add({Recorded::Kind::Put, queue, job, 0}); }
  void record(uint32_t queue, uint32_t event) { add({Recorded::Kind::Record, queue, {}, event}); }
  void wait(uint32_t queue, uint32_t event) { add({Recorded::Kind::Wait, queue, {}, event}); }

  void capture() {
    if (recording_) sdk::invalid("a capture is under way");
    recording_ = std::make_unique<Recording>();
  }
  Recording* end_capture() {
    if (!recording_) sdk::invalid("no capture is under way");
    return recording_.release();
  }
  void replay(const Recording& recording) {
    for (const Recorded& r : recording) run(r);
  }
  void not_captured(const char* call) const {
    if (recording_) sdk::invalid(std::string(call) + " cannot be captured");
  }

 private:
  void add(const Recorded& r) {
    if (recording_) recording_->push_back(r);
    else run(r);
  }
  void run(const Recorded& r) {
    switch (r.kind) {
      case Recorded::Kind::Put: return work.put(r.queue, r.job);
      case Recorded::Kind::Record: return work.record(r.queue, r.event);
      case Recorded::Kind::Wait: return work.wait(r.queue, r.event);
    }
  }
  std::unique_ptr<Recording> recording_;
};

Device& of(void* device) { return *static_cast<Device*>(device); }

galley_peak peak(const char* name, double flops) {
  galley_peak out = sdk::fresh<galley_peak>();
  out.name = name;
  out.flops = flops;
  return out;
}
galley_library library(const char* name, const char* version) {
  galley_library out = sdk::fresh<galley_library>();
  out.name = name;
  out.version = version;
  return out;
}

galley_status describe(galley_target* out, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    cpu::describe(out);
    // The proportions of a GPU, at the speed of nothing in particular.
    static const galley_peak peaks[] = {peak("f32", 1e11), peak("tf32", 8e11), peak("bf16", 16e11), peak("f16", 16e11)};
    static const galley_peak* const peak_pointers[] = {&peaks[0], &peaks[1], &peaks[2], &peaks[3]};
    static const galley_library libraries[] = {library("cublaslt", "13.0"), library("cudnn", "9.0")};
    static const galley_library* const library_pointers[] = {&libraries[0], &libraries[1]};
    static const galley_target_memory memories[] = {cpu::described_memory("device", true), cpu::described_memory("pinned", false)};
    static const galley_target_memory* const memory_pointers[] = {&memories[0], &memories[1]};
    galley_target target = sdk::read(out);
    target.device = "cuda";
    target.isa = "emulated";
    target.peaks = peak_pointers;
    target.n_peaks = 4;
    target.libraries = library_pointers;
    target.n_libraries = 2;
    target.memories = memory_pointers;
    target.n_memories = kClasses;
    galley_assign(out, &target);
  });
}
galley_status open(const galley_device_options* options, void** device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *device = new Device(*options->target); });
}
void close(void* device) noexcept { delete static_cast<Device*>(device); }
galley_status allocate(void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *out = of(device).work.memory.allocate(memory, bytes); });
}
void release(void* device, uint32_t memory, void*, int64_t) noexcept { of(device).work.memory.release(memory); }
galley_status launch(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).put(queue, {.kind = Job::Kind::Launch, .kernel = kernel, .state = state}); });
}
galley_status copy(void* device, uint32_t queue, const galley_copy* copy, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).put(queue, {.kind = Job::Kind::Copy, .copy = *copy}); });
}
galley_status record(void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).record(queue, event); });
}
galley_status wait(void* device, uint32_t queue, uint32_t event, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).wait(queue, event); });
}
galley_status await(void* device, uint32_t event, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    of(device).not_captured("await");
    of(device).work.await(event);
  });
}
galley_status synchronize(void* device, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    of(device).not_captured("synchronize");
    of(device).work.synchronize();
  });
}
galley_status capture(void* device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).capture(); });
}
galley_status end_capture(void* device, galley_run** out, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *out = reinterpret_cast<galley_run*>(of(device).end_capture()); });
}
galley_status replay(void* device, galley_run* run, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).replay(*reinterpret_cast<const Recording*>(run)); });
}
void discard(void*, galley_run* run) noexcept { delete reinterpret_cast<Recording*>(run); }
galley_queue* queue_of(void* device, uint32_t) noexcept { return reinterpret_cast<galley_queue*>(static_cast<cuda::Queue*>(&of(device))); }

constexpr galley_memory_class kMemories[] = {{sizeof(galley_memory_class), 1, "device", kAlignment, 0, 1, 0},
                                             {sizeof(galley_memory_class), 1, "pinned", kAlignment, 1, 0, 0}};
constexpr const galley_memory_class* kMemoryPointers[] = {&kMemories[kDevice], &kMemories[kPinned]};
constexpr galley_queue_info kCompute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0};
constexpr galley_queue_info kIn = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_IN, 0, 0};
constexpr galley_queue_info kOut = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_OUT, 0, 0};
constexpr const galley_queue_info* kQueueInfos[] = {&kCompute, &kIn, &kOut};

const galley_device kTable = [] {
  galley_device d = sdk::fresh<galley_device>();
  d.kind = "cuda-emulated";
  d.memories = kMemoryPointers;
  d.queues = kQueueInfos;
  d.n_memories = kClasses;
  d.n_queues = discrete::kQueues;
  d.describe = describe;
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
  d.capture = capture;
  d.end_capture = end_capture;
  d.replay = replay;
  d.discard = discard;
  d.queue_of = queue_of;
  return d;
}();
const bool registered = sdk::add(&kTable);

}  // namespace
}  // namespace galley::emulated_device

GALLEY_PLUGIN("cuda-emulated", "1.0.0");
