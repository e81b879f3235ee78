// The format "blocks": x = code · absmax / 127, a code a number in I8, an absmax in F32 for each `block` numbers that follow each other.
#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

int64_t blocks(int64_t numbers, int64_t block) {
  if (block < 1) invalid("blocks: 'block' is " + std::to_string(block));
  return (numbers + block - 1) / block;
}

void pack_shape(const Node& node, Shapes& out) {
  out.set(0, GALLEY_I8, node.in(0).shape, node.in(0).rank);
  out.set(1, GALLEY_F32, {blocks(count(node.in(0)), node.i("block", 32))});
}
void unpack_shape(const Node& node, Shapes& out) {
  if (node.dtype(GALLEY_F32) != GALLEY_F32) invalid("blocks: unpacked as F32 only");
  out.set(0, GALLEY_F32, node.in(0).shape, node.in(0).rank);
}

Op& pack() {
  static Op op("blocks_pack", "codes to the nearest, or with random up or down by chance; element i draws by i");
  op.input("x", GALLEY_ROLE_ROWS)
      .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_NO_GRADIENT)
      .output("codes", GALLEY_ROLE_ROWS)
      .output("absmax", GALLEY_ROLE_WHOLE)
      .integer("block", 32, "numbers that share an absmax")
      .infer<pack_shape>();
  return op;
}
Op& unpack() {
  static Op op("blocks_unpack", "x = codes · absmax / 127");
  op.input("codes", GALLEY_ROLE_ROWS)
      .input("absmax", GALLEY_ROLE_WHOLE)
      .output("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
      .integer("block", 32, "numbers that share an absmax")
      .infer<unpack_shape>();
  return op;
}

void components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  int64_t block = 32, numbers = 1;
  for (const galley_attr* option : options) {
    if (!galley_same_text(option->name, "block")) invalid(std::string("blocks has no option '") + option->name + "'");
    block = *static_cast<const int64_t*>(option->data);
  }
  for (const int64_t extent : shape) numbers *= extent;
  out.add("", GALLEY_I8, shape, 1);
  out.add(".absmax", GALLEY_F32, {blocks(numbers, block)}, block, "*.SCB");
}

const bool registered =
    add(pack()) && add(unpack()) &&
    add(format<components>("blocks", "blocks_pack", "blocks_unpack", GALLEY_FORMAT_TRAINABLE | GALLEY_FORMAT_STOCHASTIC));

}  // namespace

GALLEY_PLUGIN("blocks", "1.0.0");
