// Linear layers by the blocked product of blocked.hpp, in F32, on any CPU: what runs where oneDNN's fast path does not (see cpu.cpp), and before it for the dx of
// a head: sums over 16,384 or more rows of a weight. The same bytes for any number of threads, and with 256-bit and 512-bit vectors.
//
// MEASURED
#include "cpu/lanes.hpp"
#include "cpu/vector.hpp"
#include "ops/linear/roles.hpp"

namespace {

using namespace galley::sdk;
namespace cpu = galley::cpu;

// From here on oneDNN, which reads a strip of 64 columns of B from its first row to its last, waits for memory.
constexpr int64_t long_sum = 16384;

class Blocked {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!cpu::all_f32(node)) unsupported("F32 only");
    const cpu::Multiply p = cpu::product_of(node);
    plan.workspace_bytes = cut_for(p, target).bytes();
    plan.priority = p.k >= long_sum && p.a_step == 1 && p.b_step == 1 ? 2 : 0;
  }
  Blocked(const Node& node, const galley_kernel_setup& setup) : Blocked(node, *setup.target, setup.workspace) {}
  Blocked(const Node& node, const galley_target& target, void* workspace)
      : product_(cpu::product_of(node)), cut_(cut_for(product_, target)), workspace_(workspace) {}
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
