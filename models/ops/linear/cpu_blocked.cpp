// Linear layers by the blocked product of blocked.hpp, for all dtypes, on any CPU: what runs where oneDNN's fast path does not, or is slower
// (see cpu.cpp). The same bytes for any number of threads, and with 256-bit and 512-bit vectors.
//
// Measured on one thread of an Intel core with 512-bit vectors (FMA peak 226 GF; tests/models/bench_kernels) at 256 rows, in GF, oneDNN's
// tasks (cpu.cpp, – where it declines) | this:
//     K → N                y             dx            dW
//     768 → 768, T     167 | 154     170 | 151     162 | 144
//     768 → 3072, T    150 | 137     160 | 141       – | 140
//     3072 → 768, T      – | 144     161 | 143     153 | 144
//     576 → 1536       167 | 146     164 | 151     159 | 142
//     768 → 50304      147 | 131       – | 114     136 | 127
// In BF16 and F16 it is as fast to within 5 %, but for a dx with a transposed weight (.8), whose columns are converted and then transposed.
#include "cpu/lanes.hpp"
#include "ops/linear/roles.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

class Blocked {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!cpu::all_numbers(node)) unsupported("F32, BF16 and F16 only");
    const cpu::Multiply p = cpu::product_of(node);
    plan.workspace_bytes = cut_for(p, target).bytes();
  }
  Blocked(const Node& node, const galley_kernel_setup& setup)
      : product_(cpu::product_of(node)), cut_(cut_for(product_, *setup.target)), workspace_(setup.workspace) {}
  void run() const {
    cpu::in_lanes(cut_.lanes, cut_.tasks, [this](int64_t task, int64_t lane) { multiply(product_, cut_, task, lane, workspace_); });
  }

 private:
  static cpu::Blocking cut_for(const cpu::Multiply& p, const galley_target& target) { return cpu::block(p, target.threads); }
  cpu::Multiply product_;
  cpu::Blocking cut_;
  void* workspace_;
};

const bool added = add(kernel_of<Blocked>("linear.blocked", "linear")) && add(kernel_of<Blocked>("linear_dx.blocked", "linear_dx")) &&
                   add(kernel_of<Blocked>("linear_dw.blocked", "linear_dw"));

}  // namespace
