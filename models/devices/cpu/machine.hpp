// This machine as a target: what a plan needs to know of a processor. Header-only: every device that computes on the processor describes it
// alike.
//
// A plan must come out the same each time it is made on one machine, so nothing here is measured: the clock is the nominal one and the
// bandwidths are constants. They only weigh arithmetic against memory where the host chooses between recomputing and keeping.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "galley/cpp/plugin.hpp"

namespace galley::cpu {

inline constexpr int64_t kWorkspaceBudget = int64_t{256} << 20;
inline constexpr double kBandwidth = 2e10;      ///< bytes a second: two channels of DDR4, less what refresh and turnaround take
inline constexpr double kLinkBandwidth = 1e10;  ///< between memory classes both are crossed, once reading and once writing
inline constexpr double kUsualClock = 2.5e9;    ///< hertz, where the machine does not say

/// The level of the instruction set, as kernels' libraries are named for it: "x86-64-v1" to "x86-64-v4"; "generic" on other processors.
inline const char* isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4")) return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3")) return "x86-64-v3";
  if (__builtin_cpu_supports("x86-64-v2")) return "x86-64-v2";
  return "x86-64-v1";
#else
  return "generic";
#endif
}

/// F32 operations a core does in one cycle: two units of fused multiply-add (v3, v4), or one multiplier and one adder.
inline double flops_per_cycle(const std::string& level) {
  if (level == "x86-64-v4") return 2 * 2 * 16;
  if (level == "x86-64-v3") return 2 * 2 * 8;
  return 2 * 4;
}

/// Operations of matrix products in BF16 for each one in F32: 16 with tiles (AMX: 16 × 16 pairs a cycle), 2 with vectors of pairs
/// (AVX512-BF16), 0 where there are no instructions for it. Kernels tell by this what a target has.
inline double bf16_per_f32() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (std::string(isa()) != "x86-64-v4") return 0;
  constexpr unsigned bf16_of_tiles = 1u << 22, tiles = 1u << 24, bf16_of_vectors = 1u << 5;
  unsigned long kinds = 0;                            // of registers that the system gives to programs that ask
  constexpr long supported = 0x1021, tile_data = 18;  // ARCH_GET_XCOMP_SUPP, XFEATURE_XTILEDATA
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (edx & bf16_of_tiles) && (edx & tiles) &&
      ::syscall(SYS_arch_prctl, supported, &kinds) == 0 && (kinds >> tile_data & 1u))
    return 16;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax & bf16_of_vectors)) return 2;
#endif
  return 0;
}

/// The processor's nominal clock in hertz.
inline double nominal_clock() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x16, &eax, &ebx, &ecx, &edx) && (eax & 0xffffu) != 0) return 1e6 * (eax & 0xffffu);
#endif
  double kilohertz = 0;
  if (std::ifstream("/sys/devices/system/cpu/cpu0/cpufreq/base_frequency") >> kilohertz && kilohertz > 0) return 1e3 * kilohertz;
  // "cpu MHz" is the clock of this moment and would change the plan; the name of some processors ends in the nominal one.
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t at = line.find("@ "), end = line.find("GHz");
    const double gigahertz = at != std::string::npos && end != std::string::npos ? std::strtod(line.c_str() + at + 2, nullptr) : 0;
    if (gigahertz > 0) return 1e9 * gigahertz;
    break;
  }
  return kUsualClock;
}

/// Compute threads: the first number of OMP_NUM_THREADS, else the processors that this process may use. Refuses what is no such number.
inline int64_t threads() {
  if (const char* asked = std::getenv("OMP_NUM_THREADS"); asked && *asked) {
    char* end = nullptr;
    const long n = std::strtol(asked, &end, 10);
    if (end != asked && (*end == '\0' || *end == ',') && n >= 1 && n <= 4096) return n;
    sdk::invalid(std::string("the environment variable OMP_NUM_THREADS is '") + asked +
                 "'; it has to be a number of threads from 1 to 4096");
  }
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int64_t n = ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  // A container's share of time; more threads than that would only wait for each other.
  std::string quota;
  double period = 0;
  if (std::ifstream("/sys/fs/cgroup/cpu.max") >> quota >> period && quota != "max" && period > 0) {
    const double share = std::strtod(quota.c_str(), nullptr) / period;
    if (share > 0) n = std::min(n, std::max<int64_t>(1, static_cast<int64_t>(share + 0.5)));
  }
  return std::max<int64_t>(1, n);
}

/// Bytes of memory that the machine has.
inline int64_t memory_bytes() { return static_cast<int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGE_SIZE); }

inline galley_peak peak(const char* name, double flops) {
  galley_peak out = sdk::fresh<galley_peak>();
  out.name = name;
  out.flops = flops;
  return out;
}

/// Fills a target for kernels of device "cpu", on any thread. What it points to lives as long as the library.
inline void describe(galley_target* out) {
  galley_target target = sdk::read(out);
  target.device = "cpu";
  target.isa = isa();
  target.threads = threads();
  target.workspace_budget = kWorkspaceBudget;
  static const galley_peak f32 = peak("f32", static_cast<double>(target.threads) * flops_per_cycle(target.isa) * nominal_clock());
  static const galley_peak bf16 = peak("bf16", bf16_per_f32() * f32.flops);
  static const galley_peak* const peaks[] = {&f32, &bf16};
  target.peaks = peaks;
  target.n_peaks = bf16.flops > 0 ? 2 : 1;
  galley_assign(out, &target);
}

/// A memory class of this machine for a target: class 0 by the bandwidth of memory, others by what is left when both sides are crossed.
inline galley_target_memory described_memory(const char* name, bool computes) {
  galley_target_memory memory = sdk::fresh<galley_target_memory>();
  memory.name = name;
  memory.capacity = memory_bytes();
  memory.in_bandwidth = memory.out_bandwidth = computes ? kBandwidth : kLinkBandwidth;
  return memory;
}

}  // namespace galley::cpu
