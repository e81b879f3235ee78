// ema_step, F32.
#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

bool supports(const Node& node) { return node.in(0).dtype == GALLEY_F32 && node.in(1).dtype == GALLEY_F32; }
void ema_step(const Node& node, void*) {
  if (!*node.read<int32_t>(2)) return;
  const auto decay = static_cast<float>(node.f("decay", 0)), share = static_cast<float>(1 - node.f("decay", 0));
  float* mean = node.update<float>(0);
  const float* p = node.read<float>(1);
  for (int64_t i = 0; i < count(node.in(0)); ++i) mean[i] = decay * mean[i] + share * p[i];
}

const bool registered = add(kernel<ema_step, supports>("ema_step.cpu", "ema_step"));

}  // namespace

GALLEY_PLUGIN("ema", "1.0.0");
