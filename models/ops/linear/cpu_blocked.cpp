// Linear layers by the blocked product of blocked.hpp, in F32, on any CPU: what runs where oneDNN's fast path does not (see cpu.cpp). The same bytes for any
// number of threads, and with 256-bit and 512-bit vectors.
//
// Measured on Zen 4, one thread, shapes of GPT-2 124M and SmolLM2-135M at 256 rows, with 512-bit vectors: .84–.93 of the FMA peak, where oneDNN has .85–.98
// (tests/models/bench_linear.cpp).
#include "cpu/vector.hpp"
#include "ops/linear/roles.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

class Blocked {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!cpu::all_f32(node)) unsupported("F32 only");
    plan.workspace_bytes = cut_for(cpu::product_of(node), target).bytes();
  }
  Blocked(const Node& node, const galley_target& target, void* workspace) : product_(cpu::product_of(node)), cut_(cut_for(product_, target)), workspace_(workspace) {}
  void run() const {
    parallel(cut_.lanes, [this](int64_t lane) { multiply(product_, cut_, lane, workspace_); });
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
