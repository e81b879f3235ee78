// fromage_step on the CPU, for F32: blocks of a fixed size, so that sums do not depend on the number of threads.
#include <galley/cpp/plugin.hpp>

#include <cmath>

namespace {

using namespace galley::sdk;

constexpr int64_t kBlock = 16384;  // elements

int64_t blocks(const Node& node) { return (count(node.in(0)) + kBlock - 1) / kBlock; }

bool supports(const Node& node) { return node.in(0).dtype == GALLEY_F32 && node.in(1).dtype == GALLEY_F32; }

// Bytes that the kernel gets while it runs: two sums for each block.
int64_t workspace_of(const Node& node, const galley_target&) { return 2 * blocks(node) * static_cast<int64_t>(sizeof(double)); }

void fromage_step(const Node& node, void* workspace) {
  if (!*node.read<int32_t>(4)) return;
  const float lr = *node.read<float>(2), factor = *node.read<float>(3);
  const float* gradient = node.read<float>(1);
  float* p = node.update<float>(0);
  auto* sums = static_cast<double*>(workspace);
  const int64_t n = count(node.in(0));
  const auto in_blocks = [&](const auto& body) {
    parallel(blocks(node), [&](int64_t block) {
      const int64_t begin = block * kBlock;
      body(block, begin, begin + kBlock < n ? begin + kBlock : n);
    });
  };
  in_blocks([&](int64_t block, int64_t begin, int64_t end) {
    double p_squares = 0, g_squares = 0;
    for (int64_t i = begin; i < end; ++i) {
      const float g = factor * gradient[i];
      p_squares += static_cast<double>(p[i]) * p[i];
      g_squares += static_cast<double>(g) * g;
    }
    sums[2 * block] = p_squares;
    sums[2 * block + 1] = g_squares;
  });
  double p_squares = 0, g_squares = 0;
  for (int64_t block = 0; block < blocks(node); ++block) {
    p_squares += sums[2 * block];
    g_squares += sums[2 * block + 1];
  }
  const float ratio = p_squares > 0 && g_squares > 0 ? static_cast<float>(std::sqrt(p_squares / g_squares)) : 1.0f;
  const float rate = lr * ratio * factor, shrink = 1.0f / std::sqrt(1.0f + lr * lr);
  in_blocks([&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p[i] = (p[i] - rate * gradient[i]) * shrink;
  });
}

const bool registered = add(kernel<fromage_step, supports, workspace_of>("fromage_step.cpu", "fromage_step"));

}  // namespace

GALLEY_PLUGIN("fromage", "1.0.0");
