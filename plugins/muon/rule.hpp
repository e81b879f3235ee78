// Muon's step, whose gradient is an orthogonal matrix (plugin.cpp has the equations), and the inputs of what makes it.
#pragma once

#include "galley/cpp/rule.hpp"

namespace galley::muon {

class Rule {
 public:
  static constexpr int kStates = 0, kNumbers = 2, kVariants = 1;

  explicit Rule(const sdk::Node& node) : decay_(node.f("weight_decay", 0)), scale_(node.f("scale", 1)) {}

  GALLEY_ANYWHERE int variant(int64_t) const { return 0; }
  GALLEY_ANYWHERE static constexpr unsigned states(int) { return 0; }
  GALLEY_ANYWHERE float number(int which, double lr, int64_t) const {
    return static_cast<float>(which == 0 ? 1 - lr * decay_ : lr * scale_);
  }
  template <int variant>
  GALLEY_ANYWHERE void element(const float* numbers, float direction, float& p, float*) const {
    p = p * numbers[0] - numbers[1] * direction;
  }

 private:
  double decay_, scale_;
};

/// muon_momentum.
enum Input : uint32_t { kGradient, kFactor, kApply, kMomentum };

/// Constants of muon_momentum, and one element of it.
struct Momentum {
  float keep, eps;
  int32_t nesterov;

  explicit Momentum(const sdk::Node& node)
      : keep(static_cast<float>(node.f("momentum", 0.95))),
        eps(static_cast<float>(node.f("eps", 1e-7))),
        nesterov(node.i("nesterov", 1) != 0) {}

  GALLEY_ANYWHERE float buffer(float before, float gradient) const { return before + (1 - keep) * (gradient - before); }
  /// `buffer`: the new one.
  GALLEY_ANYWHERE float direction(float buffer, float gradient) const { return nesterov ? gradient + keep * (buffer - gradient) : buffer; }
  GALLEY_ANYWHERE float inverse(double squares) const {
    const double norm = sqrt(squares);
    return static_cast<float>(1 / (norm > static_cast<double>(eps) ? norm : static_cast<double>(eps)));
  }
};

/// Constants of muon_polynomial, and one element of it.
struct Polynomial {
  float a, b, c;

  explicit Polynomial(const sdk::Node& node)
      : a(static_cast<float>(node.f("a", 3.4445))),
        b(static_cast<float>(node.f("b", -4.775))),
        c(static_cast<float>(node.f("c", 2.0315))) {}

  GALLEY_ANYWHERE float element(float gram, float square, bool on_diagonal) const {
    const float sum = b * gram + c * square;
    return on_diagonal ? sum + a : sum;
  }
};

}  // namespace galley::muon
