// scale_loss: loss_scale (1), F32, in place. One number.
#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

void scale_loss(const Node& node, void*) { *node.update<float>(0) *= static_cast<float>(node.f("factor", 1)); }

bool any(const Node&) { return true; }

const bool registered = add(kernel<scale_loss, any>("scale_loss.cpu", "scale_loss"));

}  // namespace

GALLEY_PLUGIN("perturb", "1.0.0");
