// brain_pack and brain_unpack.
#include <cstring>

#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

void pack(const Node& node, void*) {
  const float* x = node.read<float>(0);
  uint16_t* y = node.write<uint16_t>(0);
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, x + i, sizeof bits);
    const bool number = (bits & 0x7FFFFFFFu) <= 0x7F800000u;  // a NaN must not be rounded into an infinity
    y[i] = static_cast<uint16_t>(number ? (bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16 : bits >> 16 | 0x40u);
  }
}

void unpack(const Node& node, void*) {
  const uint16_t* x = node.read<uint16_t>(0);
  float* y = node.write<float>(0);
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    const uint32_t bits = static_cast<uint32_t>(x[i]) << 16;
    std::memcpy(y + i, &bits, sizeof bits);
  }
}

const bool registered = add(kernel<pack>("brain_pack.cpu", "brain_pack")) && add(kernel<unpack>("brain_unpack.cpu", "brain_unpack"));

}  // namespace

GALLEY_PLUGIN("bf16-storage", "1.0.0");
