// Frozen matrices, but for the head, as floats of 6 bits (six_bit.hpp).
#include <string>

#include "galley/cpp/strategy.hpp"
#include "six_bit.hpp"

namespace {

using namespace galley::sdk;
using six_bit::kGroup;

std::vector<int64_t> divided(std::vector<int64_t> shape, int64_t by) {
  shape.back() /= by;
  return shape;
}

void pack_shape(const Node& node, Shapes& out) {
  const galley_operand& x = node.in(0);
  if (x.dtype != GALLEY_F32 || columns(x) % kGroup) invalid(std::string(node.name()) + ": x has to be F32, and a row whole groups of 32");
  const std::vector<int64_t> shape(x.shape, x.shape + x.rank);
  const int64_t by[] = {2, 4, kGroup};
  for (uint32_t k = 0; k < 3; ++k) {
    const std::vector<int64_t> part = divided(shape, by[k]);
    out.set(k, GALLEY_U8, part.data(), x.rank);
  }
}
void unpack_shape(const Node& node, Shapes& out) {
  const galley_operand &low = node.in(0), &top = node.in(1), &scale = node.in(2);
  if (columns(low) != columns(scale) * 16 || columns(top) != columns(scale) * 8 || rows(low) != rows(scale) || rows(top) != rows(scale))
    invalid(std::string(node.name()) + ": components " + shape_text(low) + ", " + shape_text(top) + " and " + shape_text(scale));
  std::vector<int64_t> shape(low.shape, low.shape + low.rank);
  shape.back() *= 2;
  out.set(0, node.dtype(GALLEY_F32), shape.data(), low.rank);
}

/// Codes are compared exactly, so they are made of float numbers, as kernels make them.
void pack_reference(const Node& node) {
  const int64_t n = count(node.in(0));
  const std::vector<float> x(node.read<double>(0), node.read<double>(0) + n);
  encode(six_bit::Numbers(node.write<uint8_t>(0), node.write<uint8_t>(1), node.write<uint8_t>(2)), 0, n, x.data());
}
void unpack_reference(const Node& node) {
  const six_bit::Numbers from(const_cast<uint8_t*>(node.read<uint8_t>(0)), const_cast<uint8_t*>(node.read<uint8_t>(1)),
                              const_cast<uint8_t*>(node.read<uint8_t>(2)));
  for (int64_t i = 0; i < count(node.out(0)); ++i)
    node.write<double>(0)[i] = static_cast<double>(six_bit::value(from.code(i / kGroup, static_cast<int>(i % kGroup)))) *
                               static_cast<double>(six_bit::scale_of(from.scale[i / kGroup]));
}

Op& pack_op() {
  static Op op("six-bit.pack", "E3M2 codes in two planes, and the exponent of a scale for each 32");
  return op.input("x", GALLEY_ROLE_WHOLE)
      .output("low", GALLEY_ROLE_WHOLE)
      .output("top", GALLEY_ROLE_WHOLE)
      .output("scale", GALLEY_ROLE_WHOLE)
      .infer<pack_shape>()
      .reference<pack_reference>()
      .test("some", {{GALLEY_F32, {37, 672}}})
      .test("zeros", {{GALLEY_F32, {3, 32}, 0, 0}})
      .test("wide", {{GALLEY_F32, {5, 3, 96}, -1e30, 1e30}})
      .test("small", {{GALLEY_F32, {5, 64}, -1e-30, 1e-30}});
}
Op& unpack_op() {
  static Op op("six-bit.unpack", "x = value of code · 2^(scale - 127), in dtype");
  return op.input("low", GALLEY_ROLE_WHOLE)
      .input("top", GALLEY_ROLE_WHOLE)
      .input("scale", GALLEY_ROLE_WHOLE)
      .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .infer<unpack_shape>()
      .reference<unpack_reference>()
      .test("some", {{GALLEY_U8, {37, 336}, 0, 255}, {GALLEY_U8, {37, 168}, 0, 255}, {GALLEY_U8, {37, 21}, 100, 130}})
      .test("bf16", {{GALLEY_U8, {9, 32}, 0, 255}, {GALLEY_U8, {9, 16}, 0, 255}, {GALLEY_U8, {9, 2}, 100, 130}}, Attrs().s("dtype", "bf16"))
      .test("far scales", {{GALLEY_U8, {9, 32}, 0, 255}, {GALLEY_U8, {9, 16}, 0, 255}, {GALLEY_U8, {9, 2}, 0, 250}},
            Attrs().s("dtype", "bf16"))
      .test("f16", {{GALLEY_U8, {9, 32}, 0, 255}, {GALLEY_U8, {9, 16}, 0, 255}, {GALLEY_U8, {9, 2}, 118, 130}}, Attrs().s("dtype", "f16"));
}

void components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  if (!options.empty()) invalid(std::string("six-bit has no option '") + options.front()->name + "'");
  if (shape.empty() || shape.back() % kGroup) invalid("six-bit stores rows of whole groups of 32");
  out.add("", GALLEY_U8, divided(shape, 2), 2);
  out.add(".top", GALLEY_U8, divided(shape, 4), 4);
  out.add(".scale", GALLEY_U8, divided(shape, kGroup), kGroup);
}

class SixBit {
 public:
  explicit SixBit(const Options&) {}
  void claim(const GraphReader& graph, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_STORAGE)) return;
    for (const Claim& weight : claims) {
      if (weight.kind != GALLEY_SUBJECT_PARAMETER || weight.trainable || weight.tensor_flags & GALLEY_TENSOR_HEAD) continue;
      const galley_tensor_info info = graph.info(weight.tensor);
      if (info.rank == 2 && info.shape[1] % kGroup == 0) weight.weak(0, six_bit::kName);
    }
  }
};

const bool added = add(pack_op()) && add(unpack_op()) && add(format<components>(six_bit::kName, "six-bit.pack", "six-bit.unpack")) &&
                   add(strategy<SixBit>("six-bit"));

}  // namespace

GALLEY_PLUGIN("six-bit", "1.0.0");
