// Calls an op's gradient rule on a graph and checks what it hands out, for `differentiate` and for proofs of gradient rules.
#pragma once

#include <cstdint>
#include <vector>

#include "host/graph/draft.hpp"

namespace galley {

/// The arguments of a gradient rule, by input or output of the node; see galley_gradient_call.
struct GradientCall {
  galley_node node = 0;
  std::vector<galley_tensor> d_outputs;
  std::vector<uint8_t> need;
  std::vector<galley_tensor> d_inputs;  ///< in: tensors that the rule may write or add to; out: the gradients that it hands out
  std::vector<uint8_t> accumulate;
};

/// Lets the rule append its nodes to the section of the graph's author. The gradient of an input must have the input's shape and dtype. If
/// it is the tensor that was offered, one of the rule's nodes must write it or add to it. Otherwise the plugin is at fault.
Status append_gradient(Draft& draft, GradientCall& call);

}  // namespace galley
