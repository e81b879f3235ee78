// Each parameter is updated as soon as its gradient is complete, and the gradient's memory is free then: LOMO (Lv et al., "Full parameter
// fine-tuning for large language models with limited resources", 2023, arXiv:2306.09782), gradient release (Warner, optimī). Beside any
// optimizer whose step of a parameter needs that parameter only: the host moves the step's nodes into the backward pass, after the last
// reader of the weight, and refuses by name what it cannot move: steps after several micro-batches, and nodes that read all gradients, as
// clipping by the global norm and loss scaling do.
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

class UpdateInBackward {
 public:
  explicit UpdateInBackward(const Options& options) : parameters_(options.strings("parameters")) {}

  void claim(const GraphReader& graph, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_GRADIENT_LIFETIME)) return;
    for (const Claim& gradient : claims)
      if (parameters_.empty() || parameters_.match(graph.info(gradient.parameter).name)) gradient.strong(GALLEY_GRADIENT_IMMEDIATE);
  }

 private:
  Patterns parameters_;
};

const bool registered = add(strategy<UpdateInBackward>("update-in-backward"));

}  // namespace

GALLEY_PLUGIN("update-in-backward", "1.0.0");
