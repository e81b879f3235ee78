// sgd_step: parameter, gradient and momentum buffer of n elements in one pass: 12 bytes an element without momentum, 20 with it, 2 less
// with a gradient in BF16 or F16; all else is F32. Bound by memory: time it beside a copy of as many bytes. Element-wise, so that neither
// threads nor the width of vectors change a bit.
#include "galley/cpp/groups.hpp"
#include "galley/cpp/half.hpp"

namespace {

using namespace galley::sdk;

constexpr int64_t kBlock = 16384;  // elements; three operands of it fit the second-level cache

struct Rule {
  float lr, factor, momentum, part, decay;  // part: of the gradient in the momentum
};

template <class G>
void plain(float* __restrict p, const G* __restrict gradient, int64_t n, const Rule r) {
  for (int64_t i = 0; i < n; ++i) p[i] = p[i] - r.lr * (r.factor * to_float(gradient[i]) + r.decay * p[i]);
}

template <bool nesterov, class G>
void with_momentum(float* __restrict p, const G* __restrict gradient, float* __restrict buffer, int64_t n, const Rule r) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = r.factor * to_float(gradient[i]) + r.decay * p[i];
    const float b = r.momentum * buffer[i] + r.part * g;
    buffer[i] = b;
    p[i] = p[i] - r.lr * (nesterov ? g + r.momentum * b : b);
  }
}

template <bool nesterov, class G>
void first_momentum(float* __restrict p, const G* __restrict gradient, float* __restrict buffer, int64_t n, const Rule r) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = r.factor * to_float(gradient[i]) + r.decay * p[i];
    buffer[i] = g;
    p[i] = p[i] - r.lr * (nesterov ? g + r.momentum * g : g);
  }
}

/// Elements [begin, begin + n).
void step_part(const Node& node, int64_t begin, int64_t n) {
  if (!*node.read<int32_t>(5)) return;
  const Rule r = {*node.read<float>(2), *node.read<float>(4), static_cast<float>(node.f("momentum", 0)),
                  static_cast<float>(1.0 - node.f("dampening", 0)), static_cast<float>(node.f("weight_decay", 0))};
  const bool nesterov = node.i("nesterov", 0) != 0, first = *node.read<int64_t>(3) == 1;
  float *p = node.update<float>(0) + begin, *buffer = node.has(6) ? node.update<float>(6) + begin : nullptr;
  const auto all = [&]<class G>(const G* gradient) {
    const auto step = first      ? (nesterov ? first_momentum<true, G> : first_momentum<false, G>)
                      : nesterov ? with_momentum<true, G>
                                 : with_momentum<false, G>;
    if (buffer) step(p, gradient + begin, buffer, n, r);
    else plain(p, gradient + begin, n, r);
  };
  by_dtype(node.in(1), all);
}

/// The steps of any number of parameters, all their blocks in one region.
class Steps {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (const Node& node : nodes) {
      for (const uint32_t i : {0u, 2u, 4u, 6u})
        if (node.has(i) && node.in(i).dtype != GALLEY_F32) unsupported("dtypes");
      if (node.in(3).dtype != GALLEY_I64 || node.in(5).dtype != GALLEY_I32) unsupported("dtypes");
    }
  }
  Steps(const Nodes& nodes, const galley_kernel_setup&) : nodes_(nodes) {
    for (const Node& node : nodes_) blocks_.add(node.in(0));
  }
  void run() const {
    blocks_.run([&](size_t i, int64_t begin, int64_t n) { step_part(nodes_[i], begin, n); });
  }

 private:
  Nodes nodes_;
  ElementBlocks blocks_{kBlock};
};

const bool registered = add(nodes_kernel<Steps>("sgd_step.cpu", "sgd_step"));

}  // namespace

GALLEY_PLUGIN("sgd", "1.0.0");
