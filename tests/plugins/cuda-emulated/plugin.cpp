// The device "cuda-emulated": kernels for CUDA, which the C++ compiler has built over galley/cuda/emulated.hpp, behind the walls of the
// device "discrete" (memory.hpp and work.hpp there): memory that the host cannot touch, and queues that do nothing before they are waited
// for. Its target says "cuda" and "emulated", so that plugins' emulated kernels are chosen.
#include "../../../models/devices/cpu/machine.hpp"
#include "../discrete/device.hpp"
#include "galley/cuda/platform.hpp"

namespace galley::emulated_device {
namespace {

using discrete::kDevice;
using discrete::kPinned;

constexpr uint32_t kClasses = 2;
constexpr int64_t kAlignment = 256;  // as cudaMalloc aligns

class Device final : public discrete::Capturing, public cuda::Queue {
 public:
  using Capturing::Capturing;
  void upload(void* to, const void* from, size_t bytes) override {
    work.synchronize();
    const discrete::Memory::Access access(work.memory);
    std::memcpy(to, from, bytes);
  }
};

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
    static const galley_library libraries[] = {library("cublaslt", "13.0"), library("cudnn", "9.19")};
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
  return sdk::guard(error, [&] { *device = static_cast<discrete::Capturing*>(new Device(*options->target)); });
}
galley_queue* queue_of(void* device, uint32_t) noexcept {
  return reinterpret_cast<galley_queue*>(static_cast<cuda::Queue*>(static_cast<Device*>(&discrete::of(device))));
}

constexpr galley_memory_class kMemories[] = {discrete::memory_class(kDevice, kAlignment, false, true),
                                             discrete::memory_class(kPinned, kAlignment, true, false)};
constexpr const galley_memory_class* kMemoryPointers[] = {&kMemories[kDevice], &kMemories[kPinned]};

const galley_device kTable = [] {
  galley_device d = discrete::device_table();
  d.kind = "cuda-emulated";
  d.memories = kMemoryPointers;
  d.n_memories = kClasses;
  d.describe = describe;
  d.open = open;
  d.queue_of = queue_of;
  return d;
}();
const bool registered = sdk::add(&kTable);

}  // namespace
}  // namespace galley::emulated_device

GALLEY_PLUGIN("cuda-emulated", "1.0.0");
