// Packing and unpacking of "companded8" and "split", in pieces on the compute threads, and their codecs.
#include "codec.hpp"
#include "galley/cpp/codec.hpp"

namespace {

using namespace galley::sdk;
using galley::split_states::Companded8, galley::split_states::Split;

const bool registered = add_codec<Companded8>(companded8::kName) && add_codec<Split>(split::kName) &&
                        add(pack_kernel<Companded8>("companded8_pack.cpu", "companded8_pack")) &&
                        add(unpack_kernel<Companded8>("companded8_unpack.cpu", "companded8_unpack")) &&
                        add(pack_kernel<Split>("split_pack.cpu", "split_pack")) &&
                        add(unpack_kernel<Split>("split_unpack.cpu", "split_unpack"));

}  // namespace

GALLEY_PLUGIN("split-states", "1.0.0");
