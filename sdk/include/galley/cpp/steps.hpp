// Kernels for the CPU of an optimizer's rule (rule.hpp):
//
//   add(step_kernel<AdamWRule>("adamw_step.cpu", "adamw_step"))             the steps of any number of parameters
//   add(step_copy_kernel<AdamWRule>("adamw_step_copy.cpu", "adamw_step>copy"))   each followed by a copy of the parameter in 16 bit
//
// One region on the compute threads for all parameters, in blocks of a fixed size; the copy is made while its block is in the cache. A step
// is bound by memory. The arithmetic is element by element, so that neither threads nor the width of vectors change a bit.
#pragma once

#include <array>

#include "galley/cpp/groups.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/rule.hpp"

namespace galley::sdk {

namespace detail {

inline constexpr int64_t kStepBlock = 16384;  // elements: four operands of it fit the second-level cache
inline constexpr int64_t kStepTile = 1024;    // elements that are converted at a time, so that they stay in the first-level cache

template <class T>
void to_floats(const T* __restrict from, int64_t n, float* __restrict to) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
}
template <class T>
void from_floats(const float* __restrict from, int64_t n, T* __restrict to) {
  for (int64_t i = 0; i < n; ++i) from_float(from[i], to[i]);
}

/// By value, so that the compiler knows that no operand overlaps it.
template <class Rule>
struct StepConstants {
  Rule rule;
  float factor;
  std::array<float, Rule::kNumbers> numbers;
};

template <class Rule, int variant>
void step_elements(const StepConstants<Rule> c, int64_t n, const float* __restrict gradient, float* __restrict p, float* __restrict s0,
                   float* __restrict s1, float* __restrict s2) {
  constexpr unsigned used = Rule::states(variant);
  for (int64_t i = 0; i < n; ++i) {
    float states[kMostStates] = {}, x = p[i];
    if constexpr (used & 1u) states[0] = s0[i];
    if constexpr (used & 2u) states[1] = s1[i];
    if constexpr (used & 4u) states[2] = s2[i];
    c.rule.template element<variant>(c.numbers.data(), c.factor * gradient[i], x, states);
    p[i] = x;
    if constexpr (used & 1u) s0[i] = states[0];
    if constexpr (used & 2u) s1[i] = states[1];
    if constexpr (used & 4u) s2[i] = states[2];
  }
}

template <class Rule, int variant = 0, class... A>
void step_variant(int which, const A&... arguments) {
  if constexpr (variant + 1 < Rule::kVariants)
    if (which != variant) return step_variant<Rule, variant + 1>(which, arguments...);
  step_elements<Rule, variant>(arguments...);
}

/// The step of one parameter.
template <class Rule>
class ParameterStep {
 public:
  explicit ParameterStep(const Node& node, const galley_operand* copy = nullptr)
      : node_(node), copy_(copy), constants_{Rule(node), 0, {}} {}

  /// Reads what is known only now.
  void begin() {
    applies_ = *node_.read<int32_t>(kStepApply) != 0;
    if (!applies_) return;
    const double lr = static_cast<double>(*node_.read<float>(kStepRate));
    const int64_t step = *node_.read<int64_t>(kStepNumber);
    constants_.factor = *node_.read<float>(kStepFactor);
    for (int k = 0; k < Rule::kNumbers; ++k) constants_.numbers[static_cast<size_t>(k)] = constants_.rule.number(k, lr, step);
    variant_ = constants_.rule.variant(step);
  }

  /// Elements [begin, begin + n).
  void run(int64_t begin, int64_t n) const {
    if (applies_) {
      const int64_t tile = node_.in(kStepGradient).dtype == GALLEY_F32 ? n : kStepTile;
      for (int64_t at = 0; at < n; at += tile) step(begin + at, std::min(tile, n - at));
    }
    if (!copy_) return;
    const float* from = node_.read<float>(kStepParameter) + begin;
    if (copy_->dtype == GALLEY_BF16) from_floats(from, n, static_cast<Bf16*>(copy_->data) + begin);
    else from_floats(from, n, static_cast<F16*>(copy_->data) + begin);
  }

 private:
  void step(int64_t begin, int64_t n) const {
    float converted[kStepTile];
    const float* gradient = converted;
    switch (node_.in(kStepGradient).dtype) {
      case GALLEY_BF16: to_floats(node_.read<Bf16>(kStepGradient) + begin, n, converted); break;
      case GALLEY_F16: to_floats(node_.read<F16>(kStepGradient) + begin, n, converted); break;
      default: gradient = node_.read<float>(kStepGradient) + begin;
    }
    step_variant<Rule>(variant_, constants_, n, gradient, node_.update<float>(kStepParameter) + begin, state(0, begin), state(1, begin),
                       state(2, begin));
  }
  float* state(uint32_t k, int64_t begin) const {
    return k < static_cast<uint32_t>(Rule::kStates) && node_.has(kStepStates + k) ? node_.update<float>(kStepStates + k) + begin : nullptr;
  }

  Node node_;
  const galley_operand* copy_;
  StepConstants<Rule> constants_;
  int variant_ = 0;
  bool applies_ = false;
};

/// Steps alone (links = 1), or each followed by a copy (links = 2).
template <class Rule, size_t links>
class ParameterSteps {
  static_assert(check_rule<Rule>());

 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      check_step<Rule>(nodes[i]);
      if constexpr (links > 1) check_step_copy(nodes[i], nodes[i + 1]);
    }
  }
  ParameterSteps(const Nodes& nodes, const galley_kernel_setup&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      if constexpr (links > 1) steps_.emplace_back(nodes[i], &nodes[i + 1].out(0));
      else steps_.emplace_back(nodes[i]);
      blocks_.add(nodes[i].in(kStepParameter));
    }
  }
  void run() {
    for (auto& step : steps_) step.begin();
    blocks_.run([&](size_t i, int64_t begin, int64_t n) { steps_[i].run(begin, n); });
  }

 private:
  std::vector<ParameterStep<Rule>> steps_;
  ElementBlocks blocks_{kStepBlock};
};

}  // namespace detail

/// A kernel of `op`, whose inputs are those of StepInput and the rule's states.
template <class Rule>
galley_kernel step_kernel(const char* name, const char* op) {
  return nodes_kernel<detail::ParameterSteps<Rule, 1>>(name, op);
}
/// A kernel of the chain "op>copy".
template <class Rule>
galley_kernel step_copy_kernel(const char* name, const char* chain) {
  return nodes_kernel<detail::ParameterSteps<Rule, 2>>(name, chain);
}

}  // namespace galley::sdk
