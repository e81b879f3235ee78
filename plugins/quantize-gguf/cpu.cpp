// gguf_blocks_unpack and the codec of gguf-blocks.
#include "galley/cpp/codec.hpp"
#include "gguf_codes.hpp"

namespace {

using namespace galley::sdk;
namespace gguf_blocks = galley::gguf_blocks;

const bool registered = add_codec<gguf_blocks::Coded>(gguf_blocks::kName) &&
                        add(unpack_kernel<gguf_blocks::Coded>("gguf_blocks_unpack.cpu", "gguf_blocks_unpack"));

}  // namespace

GALLEY_PLUGIN("quantize-gguf", "1.0.0");
