// The device "cuda-emulated": that of models/devices/cuda over a CUDA runtime of its own (runtime.cpp). Its target says "cuda" and
// "emulated", so that plugins' emulated kernels are chosen.
#include "../../../models/devices/cpu/machine.hpp"
#include "../../../models/devices/cuda/work.hpp"

namespace galley::emulated_device {
namespace {

constexpr const char* kIsa = "emulated";

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

galley_link pcie() {
  galley_link out = sdk::fresh<galley_link>();
  out.name = "pcie";
  out.bandwidth = 1.25e10;
  out.latency = 1.4e-5;
  return out;
}

galley_status describe(void*, galley_target* out, galley_error* error) noexcept {
  return sdk::guard(error, [&] {
    cpu::describe(out);
    galley_target gpu = sdk::read(out);
    cuda::describe(&gpu);  // finds out whether it can be used
    // The proportions of a GPU, at the speed of nothing in particular.
    static const galley_peak peaks[] = {peak("f32", 1e11), peak("tf32", 8e11), peak("bf16", 16e11), peak("f16", 16e11)};
    static const galley_peak* const peak_pointers[] = {&peaks[0], &peaks[1], &peaks[2], &peaks[3]};
    static const galley_library libraries[] = {library("cublaslt", "13.0"), library("cudnn", "9.19")};
    static const galley_library* const library_pointers[] = {&libraries[0], &libraries[1]};
    static const galley_target_memory memories[] = {cpu::described_memory("device", true), cpu::described_memory("pinned", false)};
    static const galley_target_memory* const memory_pointers[] = {&memories[0], &memories[1]};
    static const galley_link link = pcie();
    static const galley_link* const links[] = {&link};
    galley_target target = sdk::read(out);
    target.device = "cuda";
    target.isa = kIsa;
    target.peaks = peak_pointers;
    target.n_peaks = 4;
    target.libraries = library_pointers;
    target.n_libraries = 2;
    target.memories = memory_pointers;
    target.n_memories = cuda::kClasses;
    target.links = links;
    target.n_links = 1;
    galley_assign(out, &target);
  });
}
galley_status open(void*, const galley_device_options* options, void** device, galley_error* error) noexcept {
  return sdk::guard(error, [&] { *device = new cuda::Device(sdk::read(options), kIsa); });
}

const galley_device kTable = [] {
  galley_device d = cuda::device_table();
  d.kind = "cuda-emulated";
  d.describe = describe;
  d.open = open;
  return d;
}();
const bool registered = sdk::add(&kTable);

}  // namespace
}  // namespace galley::emulated_device

GALLEY_PLUGIN("cuda-emulated", "1.0.0");
