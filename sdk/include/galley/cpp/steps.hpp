// Kernels for the CPU of an optimizer's rule (rule.hpp):
//
//   add_step_kernels<AdamWRule>("adamw_step")
//     adamw_step.cpu               the steps of any number of parameters
//     adamw_step_copy.cpu          each followed by a copy of the parameter in 16 bit: "adamw_step>copy"
//     adamw_step_stored.cpu        where operands are in a format that has a codec
//     adamw_step_stored_copy.cpu   both
//
// One region on the compute threads for all parameters, in blocks of a fixed size; copies are made while their block is in the cache. A
// step is bound by memory, but for its formats. The arithmetic is element by element, so that neither threads nor the width of vectors
// change a bit.
#pragma once

#include <array>

#include "galley/cpp/groups.hpp"
#include "galley/cpp/half.hpp"
#include "galley/cpp/rule.hpp"
#include "galley/cpp/stored.hpp"

namespace galley::sdk {

namespace detail {

inline constexpr int64_t kStepBlock = 16384;  // elements: four operands of it fit the second-level cache

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
      : node_(node), parameter_(node.in(kStepParameter)), gradient_(node.in(kStepGradient)), constants_{Rule(node), 0, {}} {
    if (copy) copy_ = Stored(*copy);
    for (uint32_t k = 0; k < Rule::kStates; ++k)
      if (node.has(kStepStates + k)) states_[k] = Stored(node.in(kStepStates + k));
    converts_ = !parameter_.in_place() || !gradient_.in_place();
    for (const Stored& state : states_) converts_ = converts_ || !state.in_place();
  }

  /// Reads what is known only now.
  void begin() {
    applies_ = *node_.read<int32_t>(kStepApply) != 0;
    if (!applies_) return;
    const double lr = node_.has(kStepRate) ? static_cast<double>(*node_.read<float>(kStepRate)) : 0;
    const int64_t step = *node_.read<int64_t>(kStepNumber);
    constants_.factor = node_.has(kStepFactor) ? *node_.read<float>(kStepFactor) : 1;
    for (int k = 0; k < Rule::kNumbers; ++k) constants_.numbers[static_cast<size_t>(k)] = constants_.rule.number(k, lr, step);
    variant_ = constants_.rule.variant(step);
  }

  /// Elements [begin, begin + n).
  void run(int64_t begin, int64_t n) const {
    if (!converts_) {
      if (applies_) step(begin, n, nullptr);
      if (copy_) copy_.store(parameter_.load(begin, n, nullptr), n, begin);
      return;
    }
    float room[2 + kMostStates][kStoredTile];
    for (int64_t at = begin; at < begin + n; at += kStoredTile) step(at, std::min(kStoredTile, begin + n - at), room);
  }

 private:
  /// `room`: for what is converted.
  void step(int64_t begin, int64_t n, float (*room)[kStoredTile]) const {
    const auto load = [&](const Stored& stored, int place) {
      return stored ? stored.load(begin, n, room ? room[place] : nullptr) : nullptr;
    };
    float* const p = load(parameter_, 0);
    if (applies_) {
      float* states[kMostStates];
      for (int k = 0; k < kMostStates; ++k) states[k] = load(states_[k], 2 + k);
      step_variant<Rule>(variant_, constants_, n, load(gradient_, 1), p, states[0], states[1], states[2]);
      parameter_.store(p, n, begin);
      for (int k = 0; k < kMostStates; ++k)
        if (states[k]) states_[k].store(states[k], n, begin);
    }
    if (room && copy_) copy_.store(p, n, begin);
  }

  Node node_;
  Stored parameter_, gradient_, states_[kMostStates], copy_;
  StepConstants<Rule> constants_;
  int variant_ = 0;
  bool applies_ = false, converts_;
};

/// Steps alone (links = 1), or each followed by a copy (links = 2). `stored`: with operands in formats.
template <class Rule, size_t links, bool stored>
class ParameterSteps {
  static_assert(check_rule<Rule>());

 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      check_step<Rule>(nodes[i], stored, Stored::takes_coded);
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

/// Adds the kernels of `op`, whose inputs are those of StepInput and the rule's states. `known`: what they know of it, where it is neither
/// the plugin's own nor Galley's.
template <class Rule>
bool add_step_kernels(const char* op, std::initializer_list<KnownOp> known = {}) {
  return detail::add_steps(op, GALLEY_KERNEL_DEVICE, known, [](const char* name, const char* ops, auto links, auto stored) {
    return nodes_kernel<detail::ParameterSteps<Rule, links(), stored()>>(name, ops);
  });
}

}  // namespace galley::sdk
