// The arithmetic of one element, for every device.
#pragma once

#include <galley/cpp/rule.hpp>

class SignumRule {
 public:
  // One state, the running mean. One number that all elements of a parameter share. Two variants: without the mean, and with it.
  static constexpr int kStates = 1, kNumbers = 1, kVariants = 2;

  explicit SignumRule(const galley::sdk::Node& node)
      : momentum_(static_cast<float>(node.f("momentum", 0))), has_mean_(node.has(galley::sdk::kStepStates)) {}

  GALLEY_ANYWHERE int variant(int64_t /*step*/) const { return has_mean_; }
  GALLEY_ANYWHERE static constexpr unsigned states(int variant) { return variant ? 1 : 0; }
  GALLEY_ANYWHERE float number(int /*which*/, double lr, int64_t /*step*/) const { return static_cast<float>(lr); }

  template <int variant>
  GALLEY_ANYWHERE void element(const float* lr, float g, float& p, float* mean) const {
    if (variant) g = *mean = momentum_ * *mean + (1 - momentum_) * g;
    p = p - *lr * static_cast<float>((g > 0) - (g < 0));
  }

 private:
  float momentum_;
  int32_t has_mean_;
};
