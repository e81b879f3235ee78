// Packing and unpacking of "companded8" and "split", in pieces on the compute threads.
#include "formats.hpp"
#include "galley/cpp/steps.hpp"

namespace {

using namespace galley::sdk;
using galley::split_states::companded, galley::split_states::in_two;

void compand(const Node& node, void*) { convert_stored(Stored(node.in(0)), companded(node.out(0), node.out(1), node), count(node.in(0))); }
void expand(const Node& node, void*) { convert_stored(companded(node.in(0), node.in(1), node), Stored(node.out(0)), count(node.in(0))); }
void split(const Node& node, void*) { convert_stored(Stored(node.in(0)), in_two(node.out(0), node.out(1)), count(node.in(0))); }
/// In BF16 the first component as it lies.
void join(const Node& node, void*) {
  const bool rounded = node.out(0).dtype == GALLEY_BF16;
  convert_stored(rounded ? Stored(node.in(0)) : in_two(node.in(0), node.in(1)), Stored(node.out(0)), count(node.in(0)));
}

const bool registered = add(kernel<compand>("companded8_pack.cpu", "companded8_pack")) &&
                        add(kernel<expand>("companded8_unpack.cpu", "companded8_unpack")) &&
                        add(kernel<split>("split_pack.cpu", "split_pack")) && add(kernel<join>("split_unpack.cpu", "split_unpack"));

}  // namespace

GALLEY_PLUGIN("split-states", "1.0.0");
