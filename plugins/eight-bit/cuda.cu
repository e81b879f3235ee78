// dynamic8_pack and dynamic8_unpack: a warp takes a block of 256 numbers, with the functions of the steps that read and write this format.
#include "galley/cuda/steps.hpp"

namespace {

using namespace galley::cuda;

Stored coded(void* codes, void* absmax, const Node& node) {
  return {codes, absmax, node.i("signed", 1) ? kStoredDynamic8 : kStoredDynamic8Unsigned};
}
void pack(const Node& node, void*, galley_queue* queue) {
  convert_stored(Stored(node.in(0)), coded(node.out(0).data, node.out(1).data, node), count(node.in(0)), queue);
}
void unpack(const Node& node, void*, galley_queue* queue) {
  convert_stored(coded(node.in(0).data, node.in(1).data, node), Stored(node.out(0)), count(node.in(0)), queue);
}
bool any(const Node&) { return true; }

const bool registered =
    add(kernel<pack, any>("dynamic8_pack.cuda", "dynamic8_pack")) && add(kernel<unpack, any>("dynamic8_unpack.cuda", "dynamic8_unpack"));

}  // namespace

GALLEY_PLUGIN("eight-bit", "1.0.0");
