// The arithmetic of SGD (plugin.cpp has the equations). 12 bytes an element without momentum, 20 with it; a gradient in 16 bit spares 2.
#pragma once

#include "galley/cpp/rule.hpp"

namespace galley::sgd {

class Rule {
 public:
  static constexpr int kStates = 1, kNumbers = 1, kVariants = 5;

  explicit Rule(const sdk::Node& node)
      : momentum_(static_cast<float>(node.f("momentum", 0))),
        part_(static_cast<float>(1.0 - node.f("dampening", 0))),
        decay_(static_cast<float>(node.f("weight_decay", 0))),
        has_buffer_(node.has(sdk::kStepStates)),
        nesterov_(node.i("nesterov", 0) != 0) {}

  /// At the first step the buffer holds nothing yet.
  GALLEY_ANYWHERE int variant(int64_t step) const {
    return !has_buffer_ ? kPlain : step == 1 ? (nesterov_ ? kFirstNesterov : kFirst) : nesterov_ ? kNesterov : kMomentum;
  }
  GALLEY_ANYWHERE static constexpr unsigned states(int variant) { return variant == kPlain ? 0 : 1; }

  GALLEY_ANYWHERE float number(int, double lr, int64_t) const { return static_cast<float>(lr); }

  template <int variant>
  GALLEY_ANYWHERE void element(const float* lr, float gradient, float& p, float* buffer) const {
    const float g = gradient + decay_ * p;
    if (variant == kPlain) {
      p = p - *lr * g;
      return;
    }
    const float b = variant == kFirst || variant == kFirstNesterov ? g : momentum_ * *buffer + part_ * g;
    *buffer = b;
    p = p - *lr * (variant == kNesterov || variant == kFirstNesterov ? g + momentum_ * b : b);
  }

 private:
  enum Variant { kPlain, kFirst, kFirstNesterov, kMomentum, kNesterov };

  float momentum_, part_, decay_;  // part: of the gradient in the momentum
  int32_t has_buffer_, nesterov_;
};

}  // namespace galley::sgd
