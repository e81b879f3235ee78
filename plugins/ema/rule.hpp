// The average's arithmetic (plugin.cpp has the equations). 12 bytes an element, 10 with weights in 16 bit.
#pragma once

#include "galley/cpp/rule.hpp"

namespace galley::ema {

class Rule {
 public:
  static constexpr int kStates = 0, kNumbers = 1, kVariants = 1;

  explicit Rule(const sdk::Node& node) : decay_(node.f("decay", 0)), warms_up_(node.i("warmup", 0) != 0) {}

  GALLEY_ANYWHERE int variant(int64_t) const { return 0; }
  GALLEY_ANYWHERE static constexpr unsigned states(int) { return 0; }

  /// The share of the weight.
  GALLEY_ANYWHERE float number(int, double, int64_t step) const { return static_cast<float>(share(decay_, warms_up_, step)); }
  GALLEY_ANYWHERE static double share(double decay, bool warms_up, int64_t step) {
    const double early = (1.0 + static_cast<double>(step)) / (10.0 + static_cast<double>(step));
    return 1 - (warms_up && early < decay ? early : decay);
  }

  /// In this form a weight that stays where it is keeps its average where it is.
  template <int>
  GALLEY_ANYWHERE void element(const float* numbers, float weight, float& mean, float*) const {
    mean = numbers[0] < 1 ? mean + numbers[0] * (weight - mean) : weight;
  }

 private:
  double decay_;
  bool warms_up_;
};

}  // namespace galley::ema
