// amp's kernels: the scale, and BF16 storage at the bandwidth of its operands; with random bits, at the speed of Philox. Its blocks are
// drawn 64 at a time, in vectors: a step of GPT-2 124M with weights = "bf16", B=1 T=64, one thread, takes 0.98 to 1.03 s, and one block at
// a time took 1.38 to 1.46 s.
#include <algorithm>
#include <cstring>

#include "galley/cpp/half.hpp"
#include "galley/cpp/philox.hpp"
#include "galley/cpp/plugin.hpp"
#include "scale.hpp"
#include "storage.hpp"

namespace galley::amp {
namespace {

using namespace sdk;

constexpr int64_t block_elements = 16384;  // a multiple of `draws`

template <class Body>
void in_blocks(int64_t n, const Body& body) {
  parallel((n + block_elements - 1) / block_elements,
           [&](int64_t block) { body(block * block_elements, std::min(n, (block + 1) * block_elements)); });
}

void update_scale_step(const Node& node, void*) { update<float>(node); }

void pack(const Node& node, void*) {
  const float* x = node.read<float>(0);
  const int64_t* random = node.read<int64_t>(1);
  auto* y = node.write<uint16_t>(0);
  const uint64_t key = random ? galley_random_key(random, node.stream()) : 0;
  const int64_t before = first_number(node, 0);
  in_blocks(count(node.in(0)), [=](int64_t first, int64_t last) {
    if (!random) {
      for (int64_t i = first; i < last; ++i) y[i] = nearest(x[i]);
      return;
    }
    for (int64_t i = first, next = first; i < last; i = next) {
      uint32_t words[4 * philox_blocks];
      uint16_t halves[draws * philox_blocks];
      const int64_t block = (before + i) / draws, begin = block * draws - before;
      philox_many(key, static_cast<uint64_t>(block), 0, words);
      std::memcpy(halves, words, sizeof halves);
      next = std::min(last, begin + draws * philox_blocks);
      for (int64_t k = i; k < next; ++k) y[k] = cut(x[k], halves[k - begin]);
    }
  });
}

template <class To>
void unpack_as(const Node& node) {
  const auto* x = node.read<Bf16>(0);
  auto* y = node.write<To>(0);
  in_blocks(count(node.in(0)), [=](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) from_float(to_float(x[i]), y[i]);
  });
}
void unpack(const Node& node, void*) {
  switch (node.out(0).dtype) {
    case GALLEY_BF16: return unpack_as<Bf16>(node);
    case GALLEY_F16: return unpack_as<F16>(node);
    default: return unpack_as<float>(node);
  }
}

bool any(const Node&) { return true; }

const bool registered = add(kernel<update_scale_step, any>("update_scale.cpu", "update_scale")) &&
                        add(kernel<pack, any>("bf16_pack.cpu", "bf16_pack")) && add(kernel<unpack, any>("bf16_unpack.cpu", "bf16_unpack"));

}  // namespace
}  // namespace galley::amp

GALLEY_PLUGIN("amp", "1.0.0");
