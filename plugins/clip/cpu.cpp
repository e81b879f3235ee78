// clip_factor: norm (1), factor (1), F32.
// clip_values: gradient (any shape), F32, BF16 or F16, in place; factor (1), F32. One region on the compute threads for the gradients of
// all nodes, bound by memory: 8 bytes an element in F32.
#include "galley/cpp/groups.hpp"
#include "galley/cpp/half.hpp"

namespace {

using namespace galley::sdk;

bool supports(const Node& node) { return node.in(0).dtype == GALLEY_F32 && node.in(1).dtype == GALLEY_F32; }

void clip_factor(const Node& node, void*) {
  const float room = static_cast<float>(node.f("max_norm", 1.0)) / (*node.read<float>(0) + 1e-6f);
  *node.update<float>(1) *= room > 1.0f ? 1.0f : room;
}

/// NaN stays NaN.
template <class Number>
void clamp(Number* __restrict x, int64_t n, float limit) {
  for (int64_t i = 0; i < n; ++i) {
    const float number = to_float(x[i]), low = number < -limit ? -limit : number;
    from_float(low > limit ? limit : low, x[i]);
  }
}

class Values {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (const Node& node : nodes)
      if (const uint32_t dtype = node.in(0).dtype; dtype != GALLEY_F32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16)
        unsupported("dtypes");
  }
  Values(const Nodes& nodes, const galley_kernel_setup&) : nodes_(nodes), limits_(nodes.size()) {
    for (const Node& node : nodes) blocks_.add(node.in(0));
  }
  void run() {
    for (size_t i = 0; i < nodes_.size(); ++i) limits_[i] = static_cast<float>(nodes_[i].f("max_value", 1.0)) / *nodes_[i].read<float>(1);
    blocks_.run([&](size_t i, int64_t first, int64_t n) {
      const Node& node = nodes_[i];
      switch (node.in(0).dtype) {
        case GALLEY_BF16: return clamp(node.update<Bf16>(0) + first, n, limits_[i]);
        case GALLEY_F16: return clamp(node.update<F16>(0) + first, n, limits_[i]);
        default: return clamp(node.update<float>(0) + first, n, limits_[i]);
      }
    });
  }

 private:
  static constexpr int64_t kBlock = 16384;  // elements: fit the second-level cache

  Nodes nodes_;
  std::vector<float> limits_;
  ElementBlocks blocks_{kBlock};
};

const bool registered =
    add(kernel<clip_factor, supports>("clip_factor.cpu", "clip_factor")) && add(nodes_kernel<Values>("clip_values.cpu", "clip_values"));

}  // namespace

GALLEY_PLUGIN("clip", "1.0.0");
