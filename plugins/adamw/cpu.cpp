// adamw_step: parameter, gradient and states of n elements in one pass: 28 bytes an element (36 with amsgrad), 26 with a gradient in
// BF16 or F16; all else is F32. Bound by memory: .39 ns an element in cache and 1.16 ns out of it (24 GB/s a core). Element-wise, with IEEE
// division and square root, so that neither threads nor the width of vectors change a bit; bias corrections are computed once, in double.
#include <cmath>

#include "galley/cpp/groups.hpp"
#include "galley/cpp/half.hpp"

namespace {

using namespace galley::sdk;

constexpr int64_t kBlock = 16384;  // elements; four operands of it fit the second-level cache

struct Rule {
  float factor;    // of the gradient
  float keep;      // of the parameter: 1 − lr · weight_decay
  float rate;      // lr / (1 − β₁ᵗ)
  float root;      // 1 / √(1 − β₂ᵗ)
  float new_mean;  // 1 − β₁
  float beta2, new_square, eps;
};

template <bool amsgrad, class G>
void step(float* __restrict p, const G* __restrict gradient, float* __restrict mean, float* __restrict square, float* __restrict largest,
          int64_t n, const Rule r) {
  for (int64_t i = 0; i < n; ++i) {
    const float g = r.factor * to_float(gradient[i]);
    const float m = mean[i] + r.new_mean * (g - mean[i]);
    const float v = r.beta2 * square[i] + r.new_square * (g * g);
    mean[i] = m;
    square[i] = v;
    float second = v;
    if constexpr (amsgrad) {
      second = largest[i] > v ? largest[i] : v;
      largest[i] = second;
    }
    p[i] = p[i] * r.keep - r.rate * (m / (std::sqrt(second) * r.root + r.eps));
  }
}

void check(const Node& node) {
  for (const uint32_t i : {0u, 2u, 3u, 4u, 6u, 8u})
    if (node.has(i) && node.in(i).dtype != GALLEY_F32) unsupported("dtypes");
  if (node.in(5).dtype != GALLEY_I64 || node.in(7).dtype != GALLEY_I32) unsupported("dtypes");
}

Rule rule_of(const Node& node) {
  const double lr = *node.read<float>(4), t = static_cast<double>(*node.read<int64_t>(5));
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.999);
  return {*node.read<float>(6),
          static_cast<float>(1 - lr * node.f("weight_decay", 0)),
          static_cast<float>(lr / (1 - std::pow(beta1, t))),
          static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t))),
          static_cast<float>(1 - beta1),
          static_cast<float>(beta2),
          static_cast<float>(1 - beta2),
          static_cast<float>(node.f("eps", 1e-8))};
}

/// Elements [begin, begin + n).
void step_part(const Node& node, const Rule& r, int64_t begin, int64_t n) {
  float *p = node.update<float>(0) + begin, *mean = node.update<float>(2) + begin, *square = node.update<float>(3) + begin;
  float* largest = node.has(8) ? node.update<float>(8) + begin : nullptr;
  const auto all = [&](const auto* gradient) {
    if (largest) step<true>(p, gradient + begin, mean, square, largest, n, r);
    else step<false>(p, gradient + begin, mean, square, nullptr, n, r);
  };
  by_dtype(node.in(1), all);
}

/// The steps of any number of parameters, all their blocks in one region.
class Steps {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (const Node& node : nodes) check(node);
  }
  Steps(const Nodes& nodes, const galley_kernel_setup&) : nodes_(nodes), rules_(nodes.size()) {
    for (const Node& node : nodes_) blocks_.add(node.in(0));
  }
  void run() {
    for (size_t i = 0; i < nodes_.size(); ++i) rules_[i] = rule_of(nodes_[i]);
    blocks_.run([&](size_t i, int64_t begin, int64_t n) {
      if (*nodes_[i].read<int32_t>(7)) step_part(nodes_[i], rules_[i], begin, n);
    });
  }

 private:
  Nodes nodes_;
  std::vector<Rule> rules_;
  ElementBlocks blocks_{kBlock};
};

/// Steps, each followed by a copy of the parameter in 16 bit, which is made while a block of it is in the cache.
class StepsWithCopies {
 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (size_t i = 0; i < nodes.size(); i += 2) {
      check(nodes[i]);
      const galley_operand& copy = nodes[i + 1].out(0);
      if (!same_operand(nodes[i].in(0), nodes[i + 1].in(0))) unsupported("copies of something else than the parameter");
      if (copy.access != GALLEY_WRITE || (copy.dtype != GALLEY_BF16 && copy.dtype != GALLEY_F16))
        unsupported("copies that are not in 16 bit");
    }
  }
  StepsWithCopies(const Nodes& nodes, const galley_kernel_setup&) : nodes_(nodes), rules_(nodes.size() / 2) {
    for (size_t i = 0; i < nodes_.size(); i += 2) blocks_.add(nodes_[i].in(0));
  }
  void run() {
    for (size_t i = 0; i < rules_.size(); ++i) rules_[i] = rule_of(nodes_[2 * i]);
    blocks_.run([&](size_t i, int64_t begin, int64_t n) {
      const Node &node = nodes_[2 * i], &copy = nodes_[2 * i + 1];
      if (*node.read<int32_t>(7)) step_part(node, rules_[i], begin, n);
      const float* from = node.read<float>(0) + begin;
      if (copy.out(0).dtype == GALLEY_BF16) round(from, n, copy.write<Bf16>(0) + begin);
      else round(from, n, copy.write<F16>(0) + begin);
    });
  }

 private:
  template <class T>
  static void round(const float* __restrict from, int64_t n, T* __restrict to) {
    for (int64_t i = 0; i < n; ++i) from_float(from[i], to[i]);
  }

  Nodes nodes_;
  std::vector<Rule> rules_;
  ElementBlocks blocks_{kBlock};
};

const bool registered = add(nodes_kernel<Steps>("adamw_step.cpu", "adamw_step")) &&
                        add(nodes_kernel<StepsWithCopies>("adamw_step_copy.cpu", "adamw_step>copy"));

}  // namespace

GALLEY_PLUGIN("adamw", "1.0.0");
