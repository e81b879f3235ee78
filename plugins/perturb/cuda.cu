// scale_loss: loss_scale (1), F32, in place. One thread.
#include "galley/cuda/kernel.hpp"

namespace {

using namespace galley::cuda;

__global__ void multiply_loss_scale(float* loss_scale, float factor) { *loss_scale *= factor; }

void scale_loss(const Node& node, void*, galley_queue* queue) {
  launch(multiply_loss_scale, {1, 1}, queue, node.update<float>(0), static_cast<float>(node.f("factor", 1)));
}

bool any(const Node&) { return true; }

const bool registered = add(kernel<scale_loss, any>("scale_loss.cuda", "scale_loss"));

}  // namespace

GALLEY_PLUGIN("perturb", "1.0.0");
