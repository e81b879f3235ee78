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
// With 256-bit vectors this is all there is. On two threads of a Zen 3 core at 512 rows, 576 → 1536, of the peak of 200 GF: y .89, dx .90,
// dW .84, as on one thread; MKL .71, .76, .74. Best of many runs: beside other work on the same machine a step sees four fifths of that.
// In BF16 and F16 it is as fast to within 5 %, but for a dx with a transposed weight (.8), whose columns are converted and then transposed.
#include "ops/linear/products.hpp"

namespace galley::cpu {
namespace {

class Blocked : public Product {
 public:
  static Offer offer(const sdk::Node& node, const galley_target& target, Links links) {
    if (!all_numbers(node)) return {"F32, BF16 and F16 only"};
    if (!reads_weight(node)) return {"another format"};
    const Multiply p = product_of(node);
    const Blocking cut = cut_of(p, target, links == Links::Two || (links == Links::Sum && !sums_at_once(node, p)));
    return {nullptr, cut.tasks, cut.lane_bytes()};
  }
  Blocked(const sdk::Node& node, const galley_target& target, const std::optional<Activation>& activation)
      : product_(product_of(node)), activation_(activation) {
    if (activation && activation->addend() && sums_at_once(node, product_)) {
      product_.addend = activation->addend();
      product_.c = activation->sum();
      activation_.reset();
    }
    cut_ = cut_of(product_, target, activation_.has_value());
  }
  void task(int64_t task, int64_t, void* memory) const override {
    multiply(product_, cut_, task, memory, activation_ ? &*activation_ : nullptr);
  }

 private:
  // Whether a sum after the product is made where the tiles are: of one chain, in F32, so that nothing is rounded in between.
  static bool sums_at_once(const sdk::Node& node, const Multiply& p) {
    return p.c_dtype == GALLEY_F32 && p.k <= most_depth && !node.has(2);
  }
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
