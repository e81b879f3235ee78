// The device "cpu": the processor and its memory.
//
// Memory class 0, "host", is where kernels compute. Class 1, "spill", is memory of the same machine in which none does: it stands for the
// slower second class that other devices have, so that every plan with two classes runs everywhere. Both queues work at once: a launch
// returns when the kernel is done, a copy when the bytes are there, so events need no bookkeeping and synchronize() has nothing to wait
// for.
#include "arena.hpp"
#include "machine.hpp"

namespace galley::cpu {
namespace {

constexpr int64_t kCopyBlock = int64_t{1} << 20;

struct Device {
  char queues[2];  // their addresses stand for them
};

const char* class_name(uint32_t memory) { return memory == 0 ? "host" : "spill"; }

galley_status describe_machine(galley_target* out, galley_error* error) noexcept {
  return sdk::guard(error, [&] { describe(out); });
}

galley_status open(const galley_target* target, void** device, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    if (!galley_same_text(target->device, "cpu"))
      sdk::invalid(std::string("this is the device 'cpu'; the target is for '") + target->device + "'");
    *device = new Device();
  });
}

void close(void* device) noexcept { delete static_cast<Device*>(device); }

galley_status allocate(void*, uint32_t memory, int64_t bytes, void** out, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    if (memory > 1 || bytes <= 0)
      sdk::invalid("memory class " + std::to_string(memory) + ", " + std::to_string(bytes) + " bytes: there is no such arena");
    *out = allocate_arena(class_name(memory), bytes);
  });
}

void release(void*, uint32_t, void* data, int64_t bytes) noexcept { release_arena(data, bytes); }

galley_status launch(void* device, uint32_t queue, const galley_kernel* kernel, void* state, galley_error* error) noexcept {
  galley_status status = GALLEY_OK;
  // A kernel of C++ may throw whatever its table says; nothing gets past here.
  const galley_status thrown = sdk::guard(error, [&] {
    status = kernel->enqueue(state, reinterpret_cast<galley_queue*>(&static_cast<Device*>(device)->queues[queue & 1u]), error);
  });
  return thrown != GALLEY_OK ? thrown : status;
}

galley_status copy(void*, uint32_t, void* to, const void* from, int64_t bytes, galley_error*) noexcept {
  auto* const target = static_cast<std::byte*>(to);
  const auto* const source = static_cast<const std::byte*>(from);
  if (bytes < 4 * kCopyBlock || !sdk::host()) {
    std::memcpy(target, source, static_cast<size_t>(bytes));
    return GALLEY_OK;
  }
  sdk::parallel((bytes + kCopyBlock - 1) / kCopyBlock, [&](int64_t block) {
    const int64_t at = block * kCopyBlock;
    std::memcpy(target + at, source + at, static_cast<size_t>(std::min(kCopyBlock, bytes - at)));
  });
  return GALLEY_OK;
}

galley_status record(void*, uint32_t, uint32_t, galley_error*) noexcept { return GALLEY_OK; }
galley_status wait(void*, uint32_t, uint32_t, galley_error*) noexcept { return GALLEY_OK; }
galley_status synchronize(void*, galley_error*) noexcept { return GALLEY_OK; }

constexpr galley_memory_class kHost = {sizeof(galley_memory_class), 1, "host", 64, 1, 1};
constexpr galley_memory_class kSpill = {sizeof(galley_memory_class), 1, "spill", 64, 1, 0};
constexpr const galley_memory_class* kMemories[] = {&kHost, &kSpill};

constexpr galley_device kDevice = {sizeof(galley_device),
                                   1,
                                   "cpu",
                                   kMemories,
                                   2,
                                   2,
                                   describe_machine,
                                   open,
                                   close,
                                   allocate,
                                   release,
                                   launch,
                                   copy,
                                   record,
                                   wait,
                                   synchronize};
const bool registered = sdk::add(&kDevice);

}  // namespace
}  // namespace galley::cpu

GALLEY_PLUGIN("cpu", "1.0.0");
