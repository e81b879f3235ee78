// dynamic8_pack, dynamic8_unpack and the codec of dynamic8. Codes are made at .6 to 1.4 ns a number, numbers of codes at .25 ns.
#include "codec.hpp"
#include "galley/cpp/codec.hpp"

namespace {

using namespace galley::sdk;
using galley::eight_bit::Dynamic8;

const bool registered = add_codec<Dynamic8>(dynamic8::kName) && add(pack_kernel<Dynamic8>("dynamic8_pack.cpu", "dynamic8_pack")) &&
                        add(unpack_kernel<Dynamic8>("dynamic8_unpack.cpu", "dynamic8_unpack"));

}  // namespace

GALLEY_PLUGIN("eight-bit", "1.0.0");
