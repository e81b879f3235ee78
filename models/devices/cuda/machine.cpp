#include "machine.hpp"

#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "vendor.hpp"

namespace galley::cuda {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
/// What the context, the kernels' code and the libraries' handles take of the GPU's memory beside the plan, generously.
constexpr int64_t kOutsideThePlan = kGiB;
/// Of one kernel: this share of the memory, and no less than so many bytes.
constexpr int64_t kWorkspaceShare = 128, kLeastWorkspace = int64_t{256} << 20;
/// Bytes a second that a copy from pinned memory reaches over PCI Express 4 (x16); of version 5 twice as much.
constexpr double kLink4 = 2.5e10, kLink5 = 5e10;

/// Operations that one multiprocessor starts in a cycle, dense, with sums in F32; 0: it has no such instructions. From NVIDIA's papers, with
/// clock and bandwidth of one GPU of each, for machines that do not tell theirs: some virtual ones, and GH200.
struct Speed {
  int architecture;
  double f32, tf32, half, i8, f8;
  double hertz, bandwidth;  ///< of the multiprocessors; bytes a second
};
constexpr Speed kSpeeds[] = {
    {80, 128, 1024, 2048, 4096, 0, 1.41e9, 1.555e12},     // A100
    {86, 256, 256, 512, 2048, 0, 1.695e9, 9.36e11},       // RTX 30, A40
    {87, 256, 256, 512, 2048, 0, 1.3e9, 2.048e11},        // Orin
    {89, 256, 256, 512, 2048, 1024, 2.52e9, 1.008e12},    // RTX 40; L40S has twice the tensor cores' rate
    {90, 256, 2048, 4096, 8192, 8192, 1.83e9, 3.35e12},   // H100, H200
    {100, 256, 4096, 8192, 16384, 16384, 1.965e9, 8e12},  // B200
    {103, 256, 4096, 8192, 16384, 16384, 1.965e9, 8e12},  // B300
    {120, 256, 256, 512, 2048, 1024, 2.407e9, 1.792e12},  // RTX 50
};

/// The speed of the architecture, or of the one before it.
const Speed& speed_of(int architecture) {
  const Speed* found = &kSpeeds[0];
  for (const Speed& speed : kSpeeds)
    if (speed.architecture <= architecture) found = &speed;
  return *found;
}

int attribute(cudaDeviceAttr which) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, 0), "cudaDeviceGetAttribute");
  return value;
}

/// The version of cuDNN; "" where there is none that works.
std::string usable_cudnn() {
  const Cudnn found = find_cudnn();
  if (!found.missing.empty() && sdk::host())
    sdk::host()->log(sdk::host()->context, GALLEY_LOG_WARNING,
                     ("cuDNN " + found.version + " needs " + found.missing +
                      ", which was not found: attention is Galley's own; install it (package cuda-nvrtc), or name it by GALLEY_NVRTC=FILE")
                         .c_str());
  return found.missing.empty() ? found.version : "";
}

/// "12.4" of 12040.
std::string cuda_version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

/// Throws where there is a driver, but for an older CUDA than the one that this was built with.
void too_old() {
  int driver = 0, needed = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || cudaRuntimeGetVersion(&needed) != cudaSuccess || driver <= 0) return;
  std::string number;
  std::getline(std::ifstream("/sys/module/nvidia/version"), number);  // not there under WSL
  throw sdk::Failure(GALLEY_FAILED,
                     "NVIDIA's driver" + (number.empty() ? "" : " " + number) + " is too old: it is for CUDA " + cuda_version(driver) +
                         ", and CUDA " + cuda_version(needed) + " is needed",
                     "install driver 580 or later; --device cpu needs none, and `galley plan --target h100` plans without it");
}

}  // namespace

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // or the next call would report it again
  const std::string text = std::string(call) + ": " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")";
  if (status == cudaErrorInsufficientDriver) too_old();
  if (status == cudaErrorInsufficientDriver || status == cudaErrorNoDevice || status == cudaErrorInitializationError)
    throw sdk::Failure(GALLEY_FAILED, "no NVIDIA GPU can be used here: " + text,
                       "`nvidia-smi` shows GPU and driver; --device cpu needs neither, and `galley plan --target h100` plans without them");
  // What a launch did wrong comes out of a later call.
  for (const cudaError_t late : {cudaErrorIllegalAddress, cudaErrorMisalignedAddress, cudaErrorLaunchFailure, cudaErrorAssert})
    if (status == late) throw sdk::Failure(GALLEY_FAILED, text, "GALLEY_CUDA_SYNC=1 waits after each launch and names the one that fails");
  throw sdk::Failure(GALLEY_FAILED, text);
}

namespace {

galley_link link(const char* name, int64_t ranks, double bandwidth, double latency) {
  galley_link out = sdk::fresh<galley_link>();
  out.name = name;
  out.ranks = ranks;
  out.bandwidth = bandwidth;
  out.latency = latency;
  return out;
}

/// What connects the GPUs of several processes, the nearest first: figures of the targets' files, which have their sources. How a machine
/// is wired cannot be asked by a process that sees its own GPU alone.
std::span<const galley_link* const> links_of(int sm, std::string_view name) {
  static const galley_link pcie = link("pcie", 8, 1.25e10, 1.4e-5);
  static const galley_link nvlink3 = link("nvlink", 8, 2e11, 5e-6), nvlink4 = link("nvlink", 8, 3.3e11, 5e-6);
  static const galley_link nvlink5 = link("nvlink", 8, 6.6e11, 5e-6);
  static const galley_link port200 = link("network", 0, 2.25e10, 3e-5), port400 = link("network", 0, 4.5e10, 3e-5);
  static const galley_link* const consumer[] = {&pcie};
  static const galley_link* const a100[] = {&nvlink3, &port200};
  static const galley_link* const h100[] = {&nvlink4, &port400};
  static const galley_link* const b200[] = {&nvlink5, &port400};
  if (name.find("PCI") != name.npos) return consumer;
  if (sm == 80) return a100;
  if (sm == 90) return h100;
  if (sm == 100 || sm == 103) return b200;
  return consumer;
}

}  // namespace

int architecture() { return 10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor); }

void describe(galley_target* out) {
  int devices = 0;
  check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  check(devices > 0 ? cudaSuccess : cudaErrorNoDevice, "cudaGetDeviceCount");
  cudaDeviceProp properties = {};
  check(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
  const int sm = 10 * properties.major + properties.minor;
  if (sm < 80)
    throw sdk::Failure(GALLEY_UNSUPPORTED, std::string(properties.name) + " is too old: it is sm_" + std::to_string(sm) +
                                               ", and sm_80 (Ampere) or later is needed");

  static const std::string isa = "sm_" + std::to_string(sm);
  const Speed& speed = speed_of(sm);
  const double told = 1e3 * attribute(cudaDevAttrClockRate), hertz = told > 0 ? told : speed.hertz;
  const double cycles = hertz * properties.multiProcessorCount;
  // NVIDIA gives the rates of these GPUs' tensor cores at a lower clock than the highest, which they tell.
  const bool of_data_centers = sm == 90 || sm == 100 || sm == 103;
  const double slower = of_data_centers ? std::min(1.0, speed.hertz / hertz) : 1;
  const bool l40 = std::string(properties.name).find("L40") != std::string::npos || std::string(properties.name).find("L4") == 7;
  const double tensor = (l40 ? 2 : 1) * slower;
  static std::vector<galley_peak> peaks;
  static std::vector<const galley_peak*> peak_pointers;
  peaks.clear();
  peak_pointers.clear();
  const std::pair<const char*, double> rates[] = {
      {"bf16", tensor * speed.half}, {"f16", tensor * speed.half}, {"f32", speed.f32},
      {"f8", tensor * speed.f8},     {"i8", tensor * speed.i8},    {"tf32", tensor * speed.tf32}};
  for (const auto& [name, rate] : rates) {
    if (rate <= 0) continue;
    galley_peak peak = sdk::fresh<galley_peak>();
    peak.name = name;
    peak.flops = rate * cycles;
    peaks.push_back(peak);
  }
  for (const galley_peak& peak : peaks) peak_pointers.push_back(&peak);

  static galley_target_memory device = sdk::fresh<galley_target_memory>(), pinned = device;
  static const galley_target_memory* const memories[] = {&device, &pinned};
  device.name = "device";
  device.capacity = std::max<int64_t>(kGiB / 2, static_cast<int64_t>(properties.totalGlobalMem) - kOutsideThePlan);
  // Both edges of the memory's clock carry data.
  const double bandwidth = 2.0 * 1e3 * attribute(cudaDevAttrMemoryClockRate) * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8;
  device.in_bandwidth = device.out_bandwidth = bandwidth > 0 ? bandwidth : speed.bandwidth;
  pinned.name = "pinned";
  pinned.in_bandwidth = pinned.out_bandwidth = sm == 90 || sm >= 100 ? kLink5 : kLink4;

  static const std::string cublaslt = find_cublaslt(), cudnn = usable_cudnn();
  static std::vector<galley_library> libraries;
  static std::vector<const galley_library*> library_pointers;
  libraries.clear();
  library_pointers.clear();
  for (const auto& [name, version] : {std::pair("cublaslt", &cublaslt), std::pair("cudnn", &cudnn)}) {
    if (version->empty()) continue;
    galley_library library = sdk::fresh<galley_library>();
    library.name = name;
    library.version = version->c_str();
    libraries.push_back(library);
  }
  for (const galley_library& library : libraries) library_pointers.push_back(&library);

  galley_target target = sdk::read(out);
  target.device = "cuda";
  target.isa = isa.c_str();
  target.threads = properties.multiProcessorCount;
  target.workspace_budget = std::max(kLeastWorkspace, device.capacity / kWorkspaceShare >> 20 << 20);
  target.peaks = peak_pointers.data();
  target.n_peaks = static_cast<uint32_t>(peaks.size());
  target.memories = memories;
  target.n_memories = 2;
  const std::span<const galley_link* const> links = links_of(sm, properties.name);
  target.links = links.data();
  target.n_links = static_cast<uint32_t>(links.size());
  target.libraries = library_pointers.data();
  target.n_libraries = static_cast<uint32_t>(libraries.size());
  galley_assign(out, &target);
}

}  // namespace galley::cuda
