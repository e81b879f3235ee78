// The device "discrete": the processor again (its target says "cpu", so that the processor's kernels run on it) behind the walls of a
// graphics card: memory that the host cannot touch, memory for copies, a file, and a queue for copies each way. See memory.hpp and work.hpp.
#include "../../../models/devices/cpu/machine.hpp"
#include "work.hpp"

namespace galley::discrete {
namespace {

constexpr double kFileBandwidth = 2e9;  // bytes a second: a disk of flash memory

Device& of(void* device) { return *static_cast<Device*>(device); }

galley_status describe(galley_target* out, galley_error* error) noexcept {
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
    galley_target target = sdk::read(out);
    target.memories = pointers;
    target.n_memories = kClasses;
    galley_assign(out, &target);
  });
}
galley_status open(const galley_device_options* options, void** device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *device = new Device(*options->target); });
}
void close(void* device) noexcept { delete static_cast<Device*>(device); }
galley_status allocate(void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *out = of(device).memory.allocate(memory, bytes); });
}
void release(void* device, uint32_t memory, void*, int64_t) noexcept { of(device).memory.release(memory); }
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
  return sdk::guard(error, [&] { of(device).await(event); });
}
galley_status synchronize(void* device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { of(device).synchronize(); });
}

constexpr galley_memory_class memory_class(uint32_t memory, bool host_access, bool computes) {
  return {sizeof(galley_memory_class), 1, kClassNames[memory], 64, host_access, computes, 0};
}
constexpr galley_memory_class kMemories[] = {memory_class(kDevice, false, true), memory_class(kPinned, true, false),
                                             memory_class(kFile, false, false)};
constexpr const galley_memory_class* kMemoryPointers[] = {&kMemories[0], &kMemories[1], &kMemories[2]};
constexpr galley_queue_info kCompute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0};
constexpr galley_queue_info kIn = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_IN, 0, 0};
constexpr galley_queue_info kOut = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_OUT, 0, 0};
constexpr const galley_queue_info* kQueueInfos[] = {&kCompute, &kIn, &kOut};

const galley_device kTable = [] {
  galley_device d = sdk::fresh<galley_device>();
  d.kind = "discrete";
  d.memories = kMemoryPointers;
  d.queues = kQueueInfos;
  d.n_memories = kClasses;
  d.n_queues = kQueues;
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
  return d;
}();
const bool registered = sdk::add(&kTable);

}  // namespace
}  // namespace galley::discrete

GALLEY_PLUGIN("discrete", "1.0.0");
