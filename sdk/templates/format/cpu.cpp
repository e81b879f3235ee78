// The kernels that convert weights to q8, while the run is loaded, and back, before each node that reads them.
#include <galley/cpp/plugin.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace galley::sdk;

bool supports_pack(const Node& node) { return node.in(0).dtype == GALLEY_F32; }
bool supports_unpack(const Node& node) { return node.out(0).dtype == GALLEY_F32; }

/// body(begin, end, block) for each block of `n` numbers. A task has so many blocks that beginning it costs little.
template <class Body>
void each_block(const Node& node, int64_t n, const Body& body) {
  const int64_t block = node.i("block", 64), blocks = (n + block - 1) / block, task = std::max<int64_t>(1, 16384 / block);
  parallel((blocks + task - 1) / task, [&](int64_t t) {
    for (int64_t b = t * task; b < std::min((t + 1) * task, blocks); ++b) body(b * block, std::min((b + 1) * block, n), b);
  });
}

void pack(const Node& node, void*) {
  const float* x = node.read<float>(0);
  int8_t* codes = node.write<int8_t>(0);
  float* absmax = node.write<float>(1);
  each_block(node, count(node.in(0)), [&](int64_t begin, int64_t end, int64_t b) {
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(x[i]));
    const float scale = most > 0 ? 127.0f / most : 0;
    for (int64_t i = begin; i < end; ++i) codes[i] = static_cast<int8_t>(std::nearbyint(x[i] * scale));
    absmax[b] = most;
  });
}

void unpack(const Node& node, void*) {
  const int8_t* codes = node.read<int8_t>(0);
  const float* absmax = node.read<float>(1);
  float* x = node.write<float>(0);
  each_block(node, count(node.in(0)), [&](int64_t begin, int64_t end, int64_t b) {
    const float scale = absmax[b] / 127.0f;
    for (int64_t i = begin; i < end; ++i) x[i] = static_cast<float>(codes[i]) * scale;
  });
}

const bool registered =
    add(kernel<pack, supports_pack>("q8_pack.cpu", "q8_pack")) && add(kernel<unpack, supports_unpack>("q8_unpack.cpu", "q8_unpack"));

}  // namespace

GALLEY_PLUGIN("q8", "1.0.0");
