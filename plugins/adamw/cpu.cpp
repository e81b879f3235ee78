// adamw_step: parameter, gradient and states of n elements in one pass: 28 bytes an element (36 with amsgrad), 26 with a gradient in
// BF16 or F16; all else is F32. Bound by memory: time it beside a copy of as many bytes. Element-wise, with IEEE division and square root, so that neither threads nor the width of
// vectors change a bit; bias corrections are computed once, in double.
#include <cmath>

#include "galley/cpp/half.hpp"
#include "galley/cpp/plugin.hpp"

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

bool supports(const Node& node) {
  for (const uint32_t i : {0u, 2u, 3u, 4u, 6u, 8u})
    if (node.has(i) && node.in(i).dtype != GALLEY_F32) return false;
  return node.in(5).dtype == GALLEY_I64 && node.in(7).dtype == GALLEY_I32;
}

void adamw_step(const Node& node, void*) {
  if (!*node.read<int32_t>(7)) return;
  const double lr = *node.read<float>(4), t = static_cast<double>(*node.read<int64_t>(5));
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.999);
  const Rule r = {*node.read<float>(6),
                  static_cast<float>(1 - lr * node.f("weight_decay", 0)),
                  static_cast<float>(lr / (1 - std::pow(beta1, t))),
                  static_cast<float>(1 / std::sqrt(1 - std::pow(beta2, t))),
                  static_cast<float>(1 - beta1),
                  static_cast<float>(beta2),
                  static_cast<float>(1 - beta2),
                  static_cast<float>(node.f("eps", 1e-8))};
  float *p = node.update<float>(0), *mean = node.update<float>(2), *square = node.update<float>(3);
  float* largest = node.has(8) ? node.update<float>(8) : nullptr;
  const int64_t n = count(node.in(0));
  const auto all = [&](const auto* gradient) {
    parallel((n + kBlock - 1) / kBlock, [&](int64_t block) {
      const int64_t begin = block * kBlock, size = n - begin < kBlock ? n - begin : kBlock;
      if (largest) step<true>(p + begin, gradient + begin, mean + begin, square + begin, largest + begin, size, r);
      else step<false>(p + begin, gradient + begin, mean + begin, square + begin, nullptr, size, r);
    });
  };
  switch (node.in(1).dtype) {
    case GALLEY_BF16: return all(node.read<Bf16>(1));
    case GALLEY_F16: return all(node.read<F16>(1));
    default: return all(node.read<float>(1));
  }
}

const bool registered = add(kernel<adamw_step, supports>("adamw_step.cpu", "adamw_step"));

}  // namespace

GALLEY_PLUGIN("adamw", "1.0.0");
