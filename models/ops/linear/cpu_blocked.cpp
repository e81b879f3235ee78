// Linear layers by the blocked product of blocked.hpp, for all dtypes, on any CPU: what runs where oneDNN's fast path does not, or is
// slower (see cpu.cpp). The same bytes for any number of threads, and with 256-bit and 512-bit vectors.
//
// Measured on one thread of an Intel core with 512-bit vectors (FMA peak 226 GF; tests/bench/kernels.cpp) at 256 rows, in GF, oneDNN's
// tasks (cpu.cpp, – where it declines) | this:
//     K → N                y             dx            dW
//     768 → 768, T     167 | 154     170 | 151     162 | 144
//     768 → 3072, T    150 | 137     160 | 141       – | 140
//     3072 → 768, T      – | 144     161 | 143     153 | 144
//     576 → 1536       167 | 146     164 | 151     159 | 142
//     768 → 50304      147 | 131       – | 114     136 | 127
// With 256-bit vectors this is all there is. On two threads of a Zen 3 core at 512 rows, 576 → 1536, of the peak of 200 GF: y .77, dx .80,
// dW .74; one thread .88, .88, .82.
// In BF16 and F16 it is as fast to within 5 %, but for a dx with a transposed weight (.8), whose columns are converted and then transposed.
#include "ops/linear/products.hpp"

namespace galley::cpu {
namespace {

class Blocked : public Product {
 public:
  static Offer offer(const sdk::Node& node, const galley_target& target, Links links) {
    if (!all_numbers(node)) return {"F32, BF16 and F16 only"};
    if (!reads_weight(node)) return {"another format"};
    const Blocking cut = cut_of(product_of(node), target, links != Links::One);
    return {nullptr, cut.tasks, cut.lane_bytes()};
  }
  Blocked(const sdk::Node& node, const galley_target& target, const std::optional<Activation>& activation)
      : product_(product_of(node)), cut_(cut_of(product_, target, activation.has_value())), activation_(activation) {}
  void task(int64_t task, int64_t, void* memory) const override {
    multiply(product_, cut_, task, memory, activation_ ? &*activation_ : nullptr);
  }

 private:
  static Blocking cut_of(const Multiply& p, const galley_target& target, bool activated) {
    return block(p, target.threads, activated || p.c_dtype != GALLEY_F32);
  }
  Multiply product_;
  Blocking cut_;
  std::optional<Activation> activation_;
};

constexpr Way blocked = {0, Blocked::offer,
                         [](const sdk::Node& node, const galley_target& target, int64_t, const std::optional<Activation>& activation) {
                           return std::unique_ptr<Product>(std::make_unique<Blocked>(node, target, activation));
                         }};
const bool added = add_way<blocked>({"linear.blocked", "linear_dx.blocked", "linear_dw.blocked"});

}  // namespace
}  // namespace galley::cpu
