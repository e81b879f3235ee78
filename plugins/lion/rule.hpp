// Lion's arithmetic (plugin.cpp has the equations). 20 bytes an element; a gradient in 16 bit spares 2, a copy of the parameter in 16 bit
// takes 2 more.
#pragma once

#include "galley/cpp/rule.hpp"

namespace galley::lion {

class Rule {
 public:
  static constexpr int kStates = 1, kNumbers = 2, kVariants = 1;

  explicit Rule(const sdk::Node& node)
      : decay_(node.f("weight_decay", 0)),
        beta1_(static_cast<float>(node.f("beta1", 0.9))),
        new1_(static_cast<float>(1 - node.f("beta1", 0.9))),
        beta2_(static_cast<float>(node.f("beta2", 0.99))),
        new2_(static_cast<float>(1 - node.f("beta2", 0.99))) {}

  GALLEY_ANYWHERE int variant(int64_t) const { return 0; }
  GALLEY_ANYWHERE static constexpr unsigned states(int) { return 1; }

  GALLEY_ANYWHERE float number(int which, double lr, int64_t) const { return static_cast<float>(which == kKeep ? 1 - lr * decay_ : lr); }

  template <int>
  GALLEY_ANYWHERE void element(const float* numbers, float g, float& p, float* m) const {
    const float c = beta1_ * *m + new1_ * g;
    *m = beta2_ * *m + new2_ * g;
    p = p * numbers[kKeep] - numbers[kRate] * static_cast<float>((c > 0) - (c < 0));
  }

 private:
  enum Number { kKeep, kRate };  // 1 − lr · weight_decay, lr

  double decay_;
  float beta1_, new1_, beta2_, new2_;
};

}  // namespace galley::lion
