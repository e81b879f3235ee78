// dynamic8_pack and dynamic8_unpack. Codes are made at .6 to 1.4 ns a number, numbers of codes at .25 ns.
#include "galley/cpp/steps.hpp"

namespace {

using namespace galley::sdk;

Stored coded(void* codes, void* absmax, const Node& node) {
  return {codes, absmax, node.i("signed", 1) ? kStoredDynamic8 : kStoredDynamic8Unsigned};
}
void pack(const Node& node, void*) {
  convert_stored(Stored(node.in(0)), coded(node.out(0).data, node.out(1).data, node), count(node.in(0)));
}
void unpack(const Node& node, void*) {
  convert_stored(coded(node.in(0).data, node.in(1).data, node), Stored(node.out(0)), count(node.in(0)));
}

const bool registered =
    add(kernel<pack>("dynamic8_pack.cpu", "dynamic8_pack")) && add(kernel<unpack>("dynamic8_unpack.cpu", "dynamic8_unpack"));

}  // namespace

GALLEY_PLUGIN("eight-bit", "1.0.0");
