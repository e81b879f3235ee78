#include "galley/cpp/codec.hpp"
#include "six_bit.hpp"

namespace {

using namespace galley::sdk;
using six_bit::Numbers;

const bool added = add_codec<Numbers>(six_bit::kName) && add(pack_kernel<Numbers>("six-bit.pack.cpu", "six-bit.pack")) &&
                   add(unpack_kernel<Numbers>("six-bit.unpack.cpu", "six-bit.unpack"));

}  // namespace

GALLEY_PLUGIN("six-bit", "1.0.0");
