// The kernel of signsgd_step, for F32.
#include <galley/cpp/plugin.hpp>

namespace {

using namespace galley::sdk;

// Called while a run is planned: does this kernel support the node? If not, Galley tries another kernel.
bool supports(const Node& node) { return node.in(0).dtype == GALLEY_F32 && node.in(1).dtype == GALLEY_F32; }

// Called in each step. Must not allocate or wait. Blocks have a fixed size, so the result does not depend on the number of threads.
void signsgd_step(const Node& node, void*) {
  constexpr int64_t block_elements = 16384;
  if (!*node.read<int32_t>(4)) return;
  const float lr = *node.read<float>(2), factor = *node.read<float>(3), momentum = static_cast<float>(node.f("momentum", 0));
  const float* gradient = node.read<float>(1);
  float *p = node.update<float>(0), *mean = node.has(5) ? node.update<float>(5) : nullptr;
  const int64_t n = count(node.in(0));
  parallel((n + block_elements - 1) / block_elements, [&](int64_t block) {
    const int64_t begin = block * block_elements, end = begin + block_elements < n ? begin + block_elements : n;
    for (int64_t i = begin; i < end; ++i) {
      float g = factor * gradient[i];
      if (mean) g = mean[i] = momentum * mean[i] + (1 - momentum) * g;
      p[i] -= lr * static_cast<float>((g > 0) - (g < 0));
    }
  });
}

const bool registered = add(kernel<signsgd_step, supports>("signsgd_step.cpu", "signsgd_step"));

}  // namespace

GALLEY_PLUGIN("signsgd", "1.0.0");
