// The device "cuda": one NVIDIA GPU, the first that CUDA shows (CUDA_VISIBLE_DEVICES chooses).
//
// Memory class 0, "device", is the GPU's. Class 1, "pinned", is memory of the host that copies reach at full speed and without the
// processor; staging, windows and what the host reads back lie there. Queue 0 computes; 1 and 2 copy in and out beside it. Each is a
// stream. A captured sequence is one CUDA graph.
//
// The library needs the CUDA runtime, which is linked into it, and a driver only when it is asked to describe or open the GPU.
// GALLEY_CUDA_SYNC=1 waits after each launch, so that an error names the kernel and node that caused it.
#include "work.hpp"

namespace galley::cuda {
namespace {

const galley_device kTable = [] {
  galley_device d = device_table();
  d.kind = "cuda";
  d.describe = [](void*, galley_target* out, galley_error* error) noexcept { return sdk::guard(error, [&] { describe(out); }); };
  d.open = [](void*, const galley_device_options* options, void** device, galley_error* error) noexcept {
    return sdk::guard(error, [&] { *device = new Device(sdk::read(options), "sm_" + std::to_string(architecture())); });
  };
  return d;
}();
const bool registered = sdk::add(&kTable);

}  // namespace
}  // namespace galley::cuda

GALLEY_PLUGIN("cuda", "1.0.0");
