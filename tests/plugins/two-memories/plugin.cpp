// The device "two-memories": the processor again (its target says "cpu", so that the processor's kernels run on it), with a second class of
// its memory, "spill", in which nothing computes. It stands for the slower memory that other devices have; what the device does is done at
// once, so that only places differ from "cpu", and no order.
#include "../../../models/devices/cpu/device.hpp"

namespace {

struct TwoMemories {
  static constexpr const char* kind = "two-memories";
  static constexpr std::array memories = {"host", "spill"};
};

constexpr galley_device kDevice = galley::cpu::DeviceAtOnce<TwoMemories>::table();
const bool registered = galley::sdk::add(&kDevice);

}  // namespace

GALLEY_PLUGIN("two-memories", "1.0.0");
