// clip_factor: norm (1), factor (1), F32. One thread.
#include "galley/cuda/kernel.hpp"

namespace {

using namespace galley::cuda;

__global__ void scale_factor(const float* norm, float* factor, float max_norm) {
  const float room = max_norm / (*norm + 1e-6f);
  *factor *= room > 1.0f ? 1.0f : room;
}

bool supports(const Node& node) { return node.in(0).dtype == GALLEY_F32 && node.in(1).dtype == GALLEY_F32; }

void clip_factor(const Node& node, void*, galley_queue* queue) {
  launch(scale_factor, {1, 1}, queue, node.read<float>(0), node.update<float>(1), static_cast<float>(node.f("max_norm", 1.0)));
}

const bool registered = add(kernel<clip_factor, supports>("clip_factor.cuda", "clip_factor"));

}  // namespace

GALLEY_PLUGIN("clip", "1.0.0");
