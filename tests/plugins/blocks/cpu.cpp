// blocks_pack and blocks_unpack.
#include <algorithm>
#include <cmath>

#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

void pack(const Node& node, void*) {
  const float* x = node.read<float>(0);
  const int64_t* random = node.read<int64_t>(1);
  auto* codes = node.write<int8_t>(0);
  auto* absmax = node.write<float>(1);
  const uint64_t key = random ? galley_random_key(random, node.stream()) : 0;
  const int64_t n = count(node.in(0)), block = node.i("block", 32), before = first_number(node, 0);
  for (int64_t first = 0; first < n; first += block) {
    float& most = absmax[first / block];
    most = 0;
    const int64_t last = std::min(n, first + block);
    for (int64_t i = first; i < last; ++i) most = std::max(most, std::fabs(x[i]));
    for (int64_t i = first; i < last; ++i) {
      const float scaled = most > 0 ? x[i] / most * 127 : 0;
      const float below = random ? static_cast<float>(galley_philox(key, static_cast<uint64_t>(before + i), 0).word[0] >> 8) * 0x1p-24f : 0;
      codes[i] = static_cast<int8_t>(std::clamp(random ? std::floor(scaled + below) : std::nearbyint(scaled), -127.0f, 127.0f));
    }
  }
}

void unpack(const Node& node, void*) {
  const auto* codes = node.read<int8_t>(0);
  const auto* absmax = node.read<float>(1);
  auto* x = node.write<float>(0);
  const int64_t block = node.i("block", 32);
  for (int64_t i = 0; i < count(node.in(0)); ++i) x[i] = static_cast<float>(codes[i]) * (absmax[i / block] / 127);
}

bool any(const Node&) { return true; }
const bool registered =
    add(kernel<pack, any>("blocks_pack.cpu", "blocks_pack")) && add(kernel<unpack, any>("blocks_unpack.cpu", "blocks_unpack"));

}  // namespace

GALLEY_PLUGIN("blocks", "1.0.0");
