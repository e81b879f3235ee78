// The device "discrete": the processor again (its target says "cpu", so that the processor's kernels run on it) behind the walls of a
// graphics card: memory that the host cannot touch, memory for copies, a file, and a queue for copies each way. See memory.hpp and work.hpp.
#include "../../../models/devices/cpu/machine.hpp"
#include "device.hpp"

namespace galley::discrete {
namespace {

constexpr double kFileBandwidth = 2e9;  // bytes a second: a disk of flash memory

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
  return sdk::guard(error, [&] { *device = new Capturing(*options->target); });
}

constexpr galley_memory_class kMemories[] = {memory_class(kDevice, 64, false, true), memory_class(kPinned, 64, true, false),
                                             memory_class(kFile, 64, false, false)};
constexpr const galley_memory_class* kMemoryPointers[] = {&kMemories[0], &kMemories[1], &kMemories[2]};

const galley_device kTable = [] {
  galley_device d = device_table();
  d.kind = "discrete";
  d.memories = kMemoryPointers;
  d.n_memories = kClasses;
  d.describe = describe;
  d.open = open;
  return d;
}();
const bool registered = sdk::add(&kTable);

}  // namespace
}  // namespace galley::discrete

GALLEY_PLUGIN("discrete", "1.0.0");
