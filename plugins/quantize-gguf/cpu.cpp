// gguf_blocks_unpack: tasks are whole blocks.
#include <algorithm>

#include "galley/cpp/gguf_codes.hpp"
#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

constexpr int64_t kTask = 16384;  // numbers

template <class To>
void unpack_as(const Node& node) {
  const gguf_blocks::Coded from(node.read<uint8_t>(0), gguf_blocks::type_of(node.view()->attrs, node.view()->n_attrs));
  const int64_t n = count(node.out(0));
  parallel((n + kTask - 1) / kTask, [&](int64_t task) {
    const int64_t at = task * kTask;
    gguf_blocks::decode(from, at, std::min(kTask, n - at), node.write<To>(0) + at);
  });
}
void unpack(const Node& node, void*) {
  switch (node.out(0).dtype) {
    case GALLEY_BF16: return unpack_as<Bf16>(node);
    case GALLEY_F16: return unpack_as<F16>(node);
    default: return unpack_as<float>(node);
  }
}

const bool registered = add(kernel<unpack>("gguf_blocks_unpack.cpu", "gguf_blocks_unpack"));

}  // namespace

GALLEY_PLUGIN("quantize-gguf", "1.0.0");
