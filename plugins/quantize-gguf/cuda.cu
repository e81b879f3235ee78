// gguf_blocks_unpack.
#include "galley/cuda/gguf_blocks.hpp"

namespace {

using namespace galley::cuda;
namespace gguf_blocks = galley::sdk::gguf_blocks;

void unpack(const Node& node, void*, galley_queue* queue) {
  const gguf_blocks::Coded from(node.read<uint8_t>(0), gguf_blocks::type_of(node.view()->attrs, node.view()->n_attrs));
  galley::cuda::unpack(from, node.write<char>(0), node.out(0).dtype, count(node.out(0)), queue);
}
bool any(const Node&) { return true; }

const bool registered = add(kernel<unpack, any>("gguf_blocks_unpack.cuda", "gguf_blocks_unpack"));

}  // namespace

GALLEY_PLUGIN("quantize-gguf", "1.0.0");
