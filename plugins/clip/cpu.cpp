// clip_factor: norm (1), factor (1), F32.
#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

bool supports(const Node& node) { return node.in(0).dtype == GALLEY_F32 && node.in(1).dtype == GALLEY_F32; }

void clip_factor(const Node& node, void*) {
  const float room = static_cast<float>(node.f("max_norm", 1.0)) / (*node.read<float>(0) + 1e-6f);
  *node.update<float>(1) *= room > 1.0f ? 1.0f : room;
}

const bool registered = add(kernel<clip_factor, supports>("clip_factor.cpu", "clip_factor"));

}  // namespace

GALLEY_PLUGIN("clip", "1.0.0");
