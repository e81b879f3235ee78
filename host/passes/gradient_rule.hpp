// A call of an op's gradient rule on a graph.
#pragma once

#include <cstdint>
#include <vector>

#include "host/graph/graph.hpp"

namespace galley {

/// By input or output of the node; see galley_gradient_call.
struct GradientCall {
  galley_node node = 0;
  std::vector<galley_tensor> d_outputs;
  std::vector<uint8_t> need;
  std::vector<galley_tensor> d_inputs;  ///< in: what is offered to write, or to add to; out: what the rule hands out
  std::vector<uint8_t> accumulate;
};

/// Appends what the rule makes in the section of the graph's author. What it hands out for an input that needs a gradient has the input's
/// shape and dtype, and where it is what was offered, one of the rule's nodes writes it or adds to it: else the plugin is at fault.
Status append_gradient(Graph& graph, GradientCall& call);

}  // namespace galley
