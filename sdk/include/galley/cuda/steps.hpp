// Kernels for CUDA of an optimizer's rule (galley/cpp/rule.hpp):
//
//   add(step_kernel<AdamWRule>("adamw_step.cuda", "adamw_step"))             the steps of any number of parameters in one launch
//   add(step_copy_kernel<AdamWRule>("adamw_step_copy.cuda", "adamw_step>copy"))   each also writes the new parameter in 16 bit
//
// A step is bound by memory. Each block finds its parameter in a table. lr, step, factor and apply are in the device's memory, so each block
// computes the rule's numbers: in double, as the CPU does, each by a warp of its own, while the other blocks of the multiprocessor keep the
// memory busy. The arithmetic of an element is that of the CPU.
#pragma once

#include "galley/cpp/rule.hpp"
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/quad.hpp"
#include "galley/cuda/segments.hpp"

namespace galley::cuda {

namespace detail {

inline constexpr int kStepThreads = 256, kStepWarp = 32;
inline constexpr int64_t kStepBlock = 8192;  // elements: 8 quads a thread, so that the numbers cost little

/// One parameter's step.
template <class Rule>
struct ParameterStep {
  explicit ParameterStep(const Node& node)
      : rule(node),
        p(node.update<float>(sdk::kStepParameter)),
        gradient(node.in(sdk::kStepGradient).data),
        lr(node.read<float>(sdk::kStepRate)),
        factor(node.read<float>(sdk::kStepFactor)),
        step(node.read<int64_t>(sdk::kStepNumber)),
        apply(node.read<int32_t>(sdk::kStepApply)),
        count(cuda::count(node.in(sdk::kStepParameter))),
        gradient_dtype(node.in(sdk::kStepGradient).dtype) {
    for (uint32_t k = 0; k < Rule::kStates; ++k)
      if (node.has(sdk::kStepStates + k)) states[k] = node.update<float>(sdk::kStepStates + k);
  }

  Rule rule;
  float* p;
  const void* gradient;
  float* states[sdk::kMostStates] = {};
  void* copy = nullptr;  // what the chain's second link writes
  const float *lr, *factor;
  const int64_t* step;
  const int32_t* apply;
  int64_t count;
  uint32_t gradient_dtype, copy_dtype = 0;
};

/// What the threads of a block share: in registers, it would leave room for too few of them.
template <class Rule>
struct StepShared {
  ParameterStep<Rule> step;
  int64_t begin, end;  // elements
  float factor, numbers[Rule::kNumbers];
};

/// Shared memory has no constructors.
template <class Rule>
struct alignas(StepShared<Rule>) StepRoom {
  unsigned char bytes[sizeof(StepShared<Rule>)];
};

/// The n ≤ 4 elements from `at` on.
template <class Rule, int variant>
__device__ inline void step_quad(const StepShared<Rule>& shared, int64_t at, int n) {
  constexpr unsigned used = Rule::states(variant);
  const ParameterStep<Rule>& s = shared.step;
  float p[kQuad], gradient[kQuad], states[sdk::kMostStates][kQuad] = {};
  load_quad(s.p + at, n, p);
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k)
    if (used >> k & 1u) load_quad(s.states[k] + at, n, states[k]);
  load_quad(s.gradient, s.gradient_dtype, at, n, gradient);  // the last one: it waits for what it converts
#pragma unroll
  for (int i = 0; i < kQuad; ++i) {
    float own[sdk::kMostStates] = {states[0][i], states[1][i], states[2][i]};
    s.rule.template element<variant>(shared.numbers, shared.factor * gradient[i], p[i], own);
#pragma unroll
    for (int k = 0; k < Rule::kStates; ++k) states[k][i] = own[k];
  }
  store_quad(s.p + at, n, p);
#pragma unroll
  for (int k = 0; k < Rule::kStates; ++k)
    if (used >> k & 1u) store_quad(s.states[k] + at, n, states[k]);
  if (s.copy) store_quad(s.copy, s.copy_dtype, at, n, p);
}

template <class Rule, int variant = 0>
__device__ inline void step_block(int which, const StepShared<Rule>& shared) {
  if constexpr (variant + 1 < Rule::kVariants)
    if (which != variant) return step_block<Rule, variant + 1>(which, shared);
  const int64_t end = shared.end;
  for (int64_t at = shared.begin + threadIdx.x * kQuad; at < end; at += kStepThreads * kQuad)
    step_quad<Rule, variant>(shared, at, quad_at(at, end));
}

template <class Rule>
__global__ void __launch_bounds__(kStepThreads) parameter_steps(GALLEY_SEGMENTS(ParameterStep<Rule>) steps) {
  GALLEY_SHARED(StepRoom<Rule>, room, 1);
  auto* const shared = reinterpret_cast<StepShared<Rule>*>(room);
  const int warp = static_cast<int>(threadIdx.x) / kStepWarp;
  if (threadIdx.x % kStepWarp == 0 && warp < Rule::kNumbers) {
    const auto found = steps.find(blockIdx.x);
    const ParameterStep<Rule>& s = found.entry;
    shared->numbers[warp] = s.rule.number(warp, static_cast<double>(*s.lr), *s.step);
    if (warp == 0) {
      shared->step = s;
      shared->begin = found.block * kStepBlock;
      shared->end = s.count - shared->begin < kStepBlock ? s.count : shared->begin + kStepBlock;
      shared->factor = *s.factor;
    }
  }
  __syncthreads();
  const ParameterStep<Rule>& s = shared->step;
  if (*s.apply) return step_block<Rule>(s.rule.variant(*s.step), *shared);
  if (!s.copy) return;
  const int64_t end = shared->end;
  for (int64_t at = shared->begin + threadIdx.x * kQuad; at < end; at += kStepThreads * kQuad) {
    float p[kQuad];
    load_quad(s.p + at, quad_at(at, end), p);
    store_quad(s.copy, s.copy_dtype, at, quad_at(at, end), p);
  }
}

/// Steps alone (links = 1), or each followed by a copy (links = 2).
template <class Rule, size_t links>
class ParameterSteps {
  static_assert(sdk::detail::check_rule<Rule>());

 public:
  static void query(const Nodes& nodes, const galley_target&, galley_kernel_plan&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      sdk::detail::check_step<Rule>(nodes[i]);
      if constexpr (links > 1) sdk::detail::check_step_copy(nodes[i], nodes[i + 1]);
    }
  }
  ParameterSteps(const Nodes& nodes, const galley_kernel_setup&) {
    for (size_t i = 0; i < nodes.size(); i += links) {
      ParameterStep<Rule> s(nodes[i]);
      if constexpr (links > 1) {
        s.copy = nodes[i + 1].out(0).data;
        s.copy_dtype = nodes[i + 1].out(0).dtype;
      }
      steps_.add(s, blocks_of(s.count, kStepBlock));
    }
  }
  void run(galley_queue* queue) const { steps_.launch(parameter_steps<Rule>, kStepThreads, queue); }

 private:
  Segments<ParameterStep<Rule>> steps_;
};

}  // namespace detail

/// A kernel of `op`, whose inputs are those of sdk::StepInput and the rule's states.
template <class Rule>
galley_kernel step_kernel(const char* name, const char* op) {
  return nodes_kernel<detail::ParameterSteps<Rule, 1>>(name, op);
}
/// A kernel of the chain "op>copy".
template <class Rule>
galley_kernel step_copy_kernel(const char* name, const char* chain) {
  return nodes_kernel<detail::ParameterSteps<Rule, 2>>(name, chain);
}

}  // namespace galley::cuda
