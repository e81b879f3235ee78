// Packing and unpacking of "companded8" and "split": a warp takes 256 numbers, with the functions of the steps that read and write these
// formats.
#include "galley/cuda/steps.hpp"

namespace {

using namespace galley::cuda;

Stored companded(const galley_operand& codes, const galley_operand& scales, const Node& node) {
  return {codes.data, scales.data, node.i("signed", 1) ? kStoredCompanded8 : kStoredCompanded8Unsigned};
}
Stored in_two(const galley_operand& rounded, const galley_operand& corrections) { return {rounded.data, corrections.data, kStoredSplit}; }

void compand(const Node& node, void*, galley_queue* queue) {
  convert_stored(Stored(node.in(0)), companded(node.out(0), node.out(1), node), count(node.in(0)), queue);
}
void expand(const Node& node, void*, galley_queue* queue) {
  convert_stored(companded(node.in(0), node.in(1), node), Stored(node.out(0)), count(node.in(0)), queue);
}
void split(const Node& node, void*, galley_queue* queue) {
  convert_stored(Stored(node.in(0)), in_two(node.out(0), node.out(1)), count(node.in(0)), queue);
}
/// In BF16 the first component as it lies.
void join(const Node& node, void*, galley_queue* queue) {
  const bool rounded = node.out(0).dtype == GALLEY_BF16;
  convert_stored(rounded ? Stored(node.in(0)) : in_two(node.in(0), node.in(1)), Stored(node.out(0)), count(node.in(0)), queue);
}
bool any(const Node&) { return true; }

const bool registered = add(kernel<compand, any>("companded8_pack.cuda", "companded8_pack")) &&
                        add(kernel<expand, any>("companded8_unpack.cuda", "companded8_unpack")) &&
                        add(kernel<split, any>("split_pack.cuda", "split_pack")) &&
                        add(kernel<join, any>("split_unpack.cuda", "split_unpack"));

}  // namespace

GALLEY_PLUGIN("split-states", "1.0.0");
