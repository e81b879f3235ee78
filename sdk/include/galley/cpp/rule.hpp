// The arithmetic of an element-wise optimizer, written once for all devices: a rule. galley/cpp/steps.hpp makes a kernel for the CPU of it,
// galley/cuda/steps.hpp one for CUDA; both compute the same bits.
//
//   struct Signum {
//     static constexpr int kStates = 1;     of a node of this op, at most three
//     static constexpr int kNumbers = 1;    computed once for a parameter and step, at most eight
//     static constexpr int kVariants = 1;   ways to compute an element; kernels are compiled for each
//     explicit Signum(const galley::sdk::Node&);      reads the attributes. The members are constants; the rule is copied to the device
//     GALLEY_ANYWHERE int variant(int64_t step) const;               which of the ways this is
//     GALLEY_ANYWHERE static constexpr unsigned states(int variant); bit k: the variant reads and writes state k
//     GALLEY_ANYWHERE float number(int which, double lr, int64_t step) const;
//     template <int variant>
//     GALLEY_ANYWHERE void element(const float* numbers, float gradient, float& parameter, float* states) const;
//   };
//
// `step` is the applied step, from 1. `gradient` has been multiplied by the gradient factor. Compile without contraction to fused
// operations (galley_add_plugin does), and use functions whose result IEEE 754 defines: + − · / and sqrtf.
#pragma once

#include <cmath>

#include "galley/cpp/anywhere.hpp"
#include "galley/cpp/node.hpp"

namespace galley::sdk {

/// The inputs of an op that steps one parameter: these, then its states.
enum StepInput : uint32_t {
  kStepParameter,
  kStepGradient,
  kStepRate,    ///< learning rate; absent: 0
  kStepNumber,  ///< the applied step, from 1
  kStepFactor,  ///< by which the gradient is multiplied first; absent: 1
  kStepApply,   ///< 0: the step changes nothing
  kStepStates,  ///< the first state
};

inline constexpr int kMostStates = 3;

namespace detail {

template <class Rule>
constexpr bool check_rule() {
  static_assert(Rule::kStates >= 0 && Rule::kStates <= kMostStates, "a rule has at most three states");
  static_assert(Rule::kNumbers >= 1 && Rule::kNumbers <= 8, "a rule has one to eight numbers");
  static_assert(Rule::kVariants >= 1, "a rule has a variant");
  return true;
}

inline bool is_16_bit(uint32_t dtype) { return dtype == GALLEY_BF16 || dtype == GALLEY_F16; }

/// What kernels of steps take: numbers in F32, gradients in 16 bit too. A kernel of stored operands: those in a format for which
/// `takes_coded` is true, and at least one.
template <class Rule>
void check_step(const Node& node, bool stored, bool (*takes_coded)(const galley_operand&)) {
  const auto is = [&](uint32_t input, uint32_t dtype) { return node.in(input).dtype == dtype; };
  bool takes = is(kStepParameter, GALLEY_F32) && (is(kStepGradient, GALLEY_F32) || is_16_bit(node.in(kStepGradient).dtype)) &&
               is(kStepNumber, GALLEY_I64) && is(kStepApply, GALLEY_I32) && (!node.has(kStepRate) || is(kStepRate, GALLEY_F32)) &&
               (!node.has(kStepFactor) || is(kStepFactor, GALLEY_F32));
  for (int k = 0; k < Rule::kStates; ++k) {
    const uint32_t state = kStepStates + static_cast<uint32_t>(k);
    takes = takes && (!node.has(state) || is(state, GALLEY_F32));
  }
  if (!takes) unsupported("dtypes");
  bool formats = false, known = true;
  for (uint32_t i = 0; i < node.view()->n_inputs; ++i) {
    if (!node.has(i) || !node.in(i).format) continue;
    formats = true;
    known = known && (i == kStepParameter || i == kStepGradient || i >= kStepStates) && takes_coded(node.in(i));
  }
  if (formats != stored || !known) unsupported("formats");
}

/// A chain's second node, which copies the parameter into 16 bit.
inline void check_step_copy(const Node& step, const Node& copy) {
  const galley_operand& out = copy.out(0);
  if (!galley_same_text(step.in(kStepParameter).name, copy.in(0).name)) unsupported("copies of something else than the parameter");
  if (out.access != GALLEY_WRITE || !is_16_bit(out.dtype)) unsupported("copies that are not in 16 bit");
}

}  // namespace detail
}  // namespace galley::sdk
