// The device "cpu": the processor and its memory.
//
// Memory class 0, "host", is where kernels compute. Class 1, "spill", is memory of the same machine in which none does: it stands for the
// slower second class that other devices have, so that every plan with two classes runs everywhere. There is one queue, which works at once: a
// launch returns when the kernel is done, a copy when the bytes are there, so events need no bookkeeping and synchronize() has nothing to
// wait for.
#include <chrono>
#include <memory>
#include <vector>

#include "arena.hpp"
#include "machine.hpp"

namespace galley::cpu {
namespace {

constexpr int64_t kCopyBlock = int64_t{1} << 20;

using Clock = std::chrono::steady_clock;

struct Device {
  char queue;  // its address stands for it
  std::byte* arenas[2] = {};
  std::vector<Clock::time_point> marks;
};

const char* class_name(uint32_t memory) { return memory == 0 ? "host" : "spill"; }

galley_status describe_machine(galley_target* out, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    describe(out);
    static const galley_target_memory host = described_memory("host", true), spill = described_memory("spill", false);
    static const galley_target_memory* const memories[] = {&host, &spill};
    galley_target target = sdk::read(out);
    target.memories = memories;
    target.n_memories = 2;
    galley_assign(out, &target);
  });
}

galley_status open(const galley_device_options* options, void** device, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    if (!galley_same_text(options->target->device, "cpu"))
      sdk::invalid(std::string("this is the device 'cpu'; the target is for '") + options->target->device + "'");
    auto opened = std::make_unique<Device>();
    if (GALLEY_HAS(options, galley_device_options, n_marks)) opened->marks.resize(options->n_marks);
    *device = opened.release();
  });
}

void close(void* device) noexcept { delete static_cast<Device*>(device); }

galley_status allocate(void* device, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    if (memory > 1 || bytes <= 0)
      sdk::invalid("memory class " + std::to_string(memory) + ", " + std::to_string(bytes) + " bytes: there is no such arena");
    *out = allocate_arena(class_name(memory), bytes);
    static_cast<Device*>(device)->arenas[memory] = static_cast<std::byte*>(*out);
  });
}

void release(void* device, uint32_t memory, void* data, int64_t bytes) noexcept {
  release_arena(data, bytes);
  static_cast<Device*>(device)->arenas[memory & 1u] = nullptr;
}

galley_status launch(void* device, uint32_t, const galley_kernel* kernel, void* state, galley_error* error) noexcept {
  galley_status status = GALLEY_OK;
  // A kernel of C++ may throw whatever its table says; nothing gets past here.
  const galley_status thrown = sdk::guard(
      error, [&] { status = kernel->enqueue(state, reinterpret_cast<galley_queue*>(&static_cast<Device*>(device)->queue), error); });
  return thrown != GALLEY_OK ? thrown : status;
}

/// Where one side of a copy lies.
std::byte* side(const Device& device, uint32_t memory, int64_t offset, const void* address) {
  if (memory == GALLEY_MEMORY_PROCESS) return static_cast<std::byte*>(const_cast<void*>(address));
  if (memory > 1 || !device.arenas[memory]) sdk::invalid("a copy names memory class " + std::to_string(memory) + ", which has no arena");
  return device.arenas[memory] + offset;
}

galley_status copy(void* device, uint32_t, const galley_copy* copy, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    const auto& of = *static_cast<const Device*>(device);
    std::byte* const target = side(of, copy->to_memory, copy->to_offset, copy->to_address);
    const std::byte* const source = side(of, copy->from_memory, copy->from_offset, copy->from_address);
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

galley_status record(void*, uint32_t, uint32_t, galley_error*) noexcept { return GALLEY_OK; }
galley_status wait(void*, uint32_t, uint32_t, galley_error*) noexcept { return GALLEY_OK; }
galley_status await(void*, uint32_t, galley_error*) noexcept { return GALLEY_OK; }
galley_status synchronize(void*, galley_error*) noexcept { return GALLEY_OK; }

galley_status mark(void* device, uint32_t, uint32_t number, galley_error* error) noexcept {
  return sdk::guard(error, [&] { static_cast<Device*>(device)->marks.at(number) = Clock::now(); });
}
galley_status time(void* device, uint32_t number, double* seconds, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    const auto& marks = static_cast<const Device*>(device)->marks;
    *seconds = std::chrono::duration<double>(marks.at(number) - marks.at(0)).count();
  });
}

constexpr galley_memory_class kHost = {sizeof(galley_memory_class), 1, "host", 64, 1, 1, 0};
constexpr galley_memory_class kSpill = {sizeof(galley_memory_class), 1, "spill", 64, 1, 0, 0};
constexpr const galley_memory_class* kMemories[] = {&kHost, &kSpill};
constexpr galley_queue_info kCompute = {sizeof(galley_queue_info), 1, GALLEY_QUEUE_COMPUTE, 0, 0};
constexpr const galley_queue_info* kQueues[] = {&kCompute};

constexpr galley_device kDevice = [] {
  galley_device d = sdk::fresh<galley_device>();
  d.kind = "cpu";
  d.memories = kMemories;
  d.queues = kQueues;
  d.n_memories = 2;
  d.n_queues = 1;
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
}();
const bool registered = sdk::add(&kDevice);

}  // namespace
}  // namespace galley::cpu

GALLEY_PLUGIN("cpu", "1.0.0");
