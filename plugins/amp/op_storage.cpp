// The format "bf16": the numbers themselves, rounded to BF16. An update rounds them stochastically (Gupta et al., "Deep Learning with
// Limited Numerical Precision", 2015, arXiv:1502.02551): up with the probability of what is cut off, so that updates smaller than half a
// place are not lost but come through on average. 16 random bits are added below the place, then the rest is cut off.
#include "storage.hpp"

namespace galley::amp {
namespace {

using namespace sdk;

void pack_shape(const Node& node, Shapes& out) {
  if (node.in(0).dtype != GALLEY_F32) invalid(std::string(node.name()) + ": x has to be F32");
  if (node.has(1) && (node.in(1).dtype != GALLEY_I64 || count(node.in(1)) != 4))
    invalid(std::string(node.name()) + ": random has to be I64 (4): seed, window, first row, 0");
  out.set(0, GALLEY_BF16, node.in(0).shape, node.in(0).rank);
}
void pack_reference(const Node& node) {
  const int64_t* random = node.read<int64_t>(1);
  const uint64_t key = random ? galley_random_key(random, node.stream()) : 0;
  const int64_t before = first_number(node, 0);
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    const float x = static_cast<float>(node.read<double>(0)[i]);
    const galley_philox_block drawn = random ? galley_philox(key, static_cast<uint64_t>((before + i) / draws), 0) : galley_philox_block{};
    node.write<double>(0)[i] = widened(random ? cut(x, half_of(drawn, before + i)) : nearest(x));
  }
}

void unpack_shape(const Node& node, Shapes& out) {
  const uint32_t dtype = node.dtype(GALLEY_F32);
  if (dtype != GALLEY_F32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16)
    invalid(std::string(node.name()) + ": bf16 is unpacked as F32, BF16 or F16");
  if (node.in(0).dtype != GALLEY_BF16) invalid(std::string(node.name()) + ": what is unpacked has to be BF16");
  out.set(0, dtype, node.in(0).shape, node.in(0).rank);
}
void unpack_reference(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i) node.write<double>(0)[i] = node.read<double>(0)[i];
}

void components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  if (!options.empty()) invalid(std::string("bf16 has no option '") + options[0]->name + "'");
  out.add("", GALLEY_BF16, shape, 1);
}

Op pack("bf16_pack", "y = x as BF16: to the nearest, ties to even; with random, up or down by chance; x F32, random I64 (4)");
Op unpack("bf16_unpack", "y = x in dtype");

bool registered_ops() {
  pack.input("x", GALLEY_ROLE_ROWS)
      .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_NO_GRADIENT)
      .output("y", GALLEY_ROLE_ROWS)
      .infer<pack_shape>()
      .reference<pack_reference>()
      .test("nearest", {{GALLEY_F32, {37, 671}}})
      .test("stochastic", {{GALLEY_F32, {37, 671}}, {GALLEY_I64, {4}, 0, 1000}}, Attrs().s("stream", "wte"))
      .test("few", {{GALLEY_F32, {3}}, {GALLEY_I64, {4}, 0, 1000}});
  unpack.input("x", GALLEY_ROLE_ROWS)
      .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
      .infer<unpack_shape>()
      .reference<unpack_reference>()
      .test("f32", {{GALLEY_BF16, {37, 671}}})
      .test("bf16", {{GALLEY_BF16, {37, 671}}}, Attrs().s("dtype", "bf16"))
      .test("f16", {{GALLEY_BF16, {37, 671}}}, Attrs().s("dtype", "f16"));
  return add(pack) && add(unpack) &&
         add(format<components>("bf16", "bf16_pack", "bf16_unpack",
                                GALLEY_FORMAT_EXACT | GALLEY_FORMAT_TRAINABLE | GALLEY_FORMAT_STOCHASTIC | GALLEY_FORMAT_PLAIN));
}
const bool registered = registered_ops();

}  // namespace
}  // namespace galley::amp
