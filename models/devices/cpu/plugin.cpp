// The device "cpu": the processor and its memory, one class in which kernels compute. There is a queue that works
// at once, and one for exchanges with other processes.
#include "device.hpp"

namespace galley::cpu {
namespace {

struct Cpu {
  static constexpr const char* kind = "cpu";
  static constexpr std::array memories = {"host"};
};

constexpr galley_device kDevice = DeviceAtOnce<Cpu>::table();
const bool registered = sdk::add(&kDevice);

}  // namespace
}  // namespace galley::cpu

GALLEY_PLUGIN("cpu", "1.0.0");
