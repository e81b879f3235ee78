// Seven bytes a parameter with AdamW (Ortiz et al., "FlashOptim: Optimizers for memory-efficient training", 2026, arXiv:2602.23349), beside
// any optimizer, by claims alone: weights in the format "split" (16 bit and a correction of 8), states in "companded8" (8 bit after a
// curve, a scale for 32 numbers), gradients in BF16. Kernels of every step read and write both formats, so nothing is kept in F32; with
// bf16 arithmetic, products read the 16 bits of a weight as they lie. The formats have ops of their own, for whatever else reads numbers.
#include <algorithm>

#include "codec.hpp"
#include "galley/cpp/patterns.hpp"
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

// ---- companded8 ---------------------------------------------------------------------------------------------------------------------

bool signed_of(const Node& node) { return node.i("signed", 1) != 0; }
uint32_t codes_dtype(bool with_signs) { return with_signs ? GALLEY_I8 : GALLEY_U8; }

void compand_shape(const Node& node, Shapes& out) {
  if (node.in(0).dtype != GALLEY_F32) invalid(std::string(node.name()) + ": x has to be F32");
  out.set(0, codes_dtype(signed_of(node)), node.in(0).shape, node.in(0).rank);
  out.set(1, GALLEY_BF16, {companded8::groups(count(node.in(0)))});
}
void expand_shape(const Node& node, Shapes& out) {
  const std::string name = node.name();
  if (node.in(0).dtype != codes_dtype(signed_of(node)) || node.in(1).dtype != GALLEY_BF16)
    invalid(name + ": codes have to be I8 with signs and U8 without, scales BF16");
  if (node.dtype(GALLEY_F32) != GALLEY_F32) invalid(name + ": companded8 is unpacked as F32 only");
  if (count(node.in(1)) != companded8::groups(count(node.in(0))))
    invalid(name + ": " + shape_text(node.in(1)) + " scales for codes " + shape_text(node.in(0)));
  out.set(0, GALLEY_F32, node.in(0).shape, node.in(0).rank);
}

/// Codes are compared exactly, so they are made of float numbers, as kernels make them.
void compand_reference(const Node& node) {
  const int64_t n = count(node.in(0));
  const std::vector<float> numbers(node.read<double>(0), node.read<double>(0) + n);
  std::vector<uint16_t> scales(static_cast<size_t>(companded8::groups(n)));
  encode(galley::split_states::Companded8(node.write<uint8_t>(0), scales.data(), signed_of(node)), 0, n, numbers.data());
  std::transform(scales.begin(), scales.end(), node.write<double>(1), [](uint16_t s) { return companded8::value_of(s); });
}
void expand_reference(const Node& node) {
  const uint8_t* const codes = node.read<uint8_t>(0);
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    const double z = signed_of(node) ? static_cast<int8_t>(codes[i]) / 127.0 : codes[i] / 255.0;
    node.write<double>(0)[i] = (signed_of(node) ? z / (2 - std::abs(z)) : z * z) * node.read<double>(1)[i / companded8::kGroup];
  }
}

Op& compand() {
  static Op op("companded8_pack", "codes of x / scale after a curve, scale = max |x| of each 32");
  op.input("x", GALLEY_ROLE_WHOLE)
      .output("codes", GALLEY_ROLE_WHOLE)
      .output("scales", GALLEY_ROLE_WHOLE)
      .integer("signed", 1, "0: no number is negative")
      .infer<compand_shape>()
      .reference<compand_reference>()
      .test("signed", {{GALLEY_F32, {37, 671}}})
      .test("unsigned", {{GALLEY_F32, {37, 671}, 0, 1e-3}}, Attrs().i("signed", 0))
      .test("one group", {{GALLEY_F32, {32}}})
      .test("less", {{GALLEY_F32, {3}}});
  return op;
}
Op& expand() {
  static Op op("companded8_unpack", "x = what the code stands for * scale");
  op.input("codes", GALLEY_ROLE_WHOLE)
      .input("scales", GALLEY_ROLE_WHOLE)
      .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .integer("signed", 1, "0: no number is negative")
      .infer<expand_shape>()
      .reference<expand_reference>()
      .test("signed", {{GALLEY_I8, {37, 671}, -127, 127}, {GALLEY_BF16, {776}, 0, 1}})
      .test("unsigned", {{GALLEY_U8, {512}, 0, 255}, {GALLEY_BF16, {16}, 0, 1}}, Attrs().i("signed", 0));
  return op;
}

void companded8_components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  bool with_signs = true;
  for (const galley_attr* option : options) {
    if (!galley_same_text(option->name, "signed")) invalid(std::string("companded8 has no option '") + option->name + "'");
    with_signs = *static_cast<const int64_t*>(option->data) != 0;
  }
  int64_t numbers = 1;
  for (const int64_t extent : shape) numbers *= extent;
  out.add("", codes_dtype(with_signs), shape, 1);
  out.add(".scale", GALLEY_BF16, {companded8::groups(numbers)}, companded8::kGroup);
}

// ---- split --------------------------------------------------------------------------------------------------------------------------

void split_shape(const Node& node, Shapes& out) {
  if (node.in(0).dtype != GALLEY_F32) invalid(std::string(node.name()) + ": x has to be F32");
  out.set(0, GALLEY_BF16, node.in(0).shape, node.in(0).rank);
  out.set(1, GALLEY_I8, node.in(0).shape, node.in(0).rank);
}
void join_shape(const Node& node, Shapes& out) {
  const std::string name = node.name();
  const uint32_t dtype = node.dtype(GALLEY_F32);
  if (dtype != GALLEY_F32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16) invalid(name + ": split is unpacked as F32, BF16 or F16");
  if (node.in(0).dtype != GALLEY_BF16 || node.in(1).dtype != GALLEY_I8) invalid(name + ": numbers have to be BF16, corrections I8");
  if (count(node.in(0)) != count(node.in(1)))
    invalid(name + ": corrections " + shape_text(node.in(1)) + " for numbers " + shape_text(node.in(0)));
  out.set(0, dtype, node.in(0).shape, node.in(0).rank);
}
void split_reference(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    const float x = static_cast<float>(node.read<double>(0)[i]);
    const uint16_t y = split::rounded(x);
    node.write<double>(0)[i] = companded8::value_of(y);
    node.write<int8_t>(1)[i] = split::correction(x, y);
  }
}
void join_reference(const Node& node) {
  const bool rounded = node.dtype(GALLEY_F32) == GALLEY_BF16;
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    const auto y = static_cast<float>(node.read<double>(0)[i]);
    node.write<double>(0)[i] = rounded ? y : split::value(split::rounded(y), node.read<int8_t>(1)[i]);  // exact in F32
  }
}

Op& split_op() {
  static Op op("split_pack", "y = x as BF16, and 128ths of half its last place that y lacks");
  op.input("x", GALLEY_ROLE_WHOLE)
      .output("y", GALLEY_ROLE_WHOLE)
      .output("corrections", GALLEY_ROLE_WHOLE)
      .infer<split_shape>()
      .reference<split_reference>()
      .test("rows", {{GALLEY_F32, {37, 671}}})
      .test("small", {{GALLEY_F32, {515}, -1e-33, 1e-33}})
      .test("few", {{GALLEY_F32, {3}}});
  return op;
}
Op& join_op() {
  static Op op("split_unpack", "x = y and its correction, in dtype; in BF16 x = y");
  op.input("y", GALLEY_ROLE_WHOLE)
      .input("corrections", GALLEY_ROLE_WHOLE)
      .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .infer<join_shape>()
      .reference<join_reference>()
      .test("f32", {{GALLEY_BF16, {37, 671}}, {GALLEY_I8, {37, 671}, -127, 127}})
      .test("bf16", {{GALLEY_BF16, {37, 671}}, {GALLEY_I8, {37, 671}, -127, 127}}, Attrs().s("dtype", "bf16"))
      .test("f16", {{GALLEY_BF16, {515}}, {GALLEY_I8, {515}, -127, 127}}, Attrs().s("dtype", "f16"));
  return op;
}

void split_components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  if (!options.empty()) invalid(std::string("split has no option '") + options[0]->name + "'");
  out.add("", GALLEY_BF16, shape, 1);
  out.add(".correction", GALLEY_I8, shape, 1);
}

// ---- The strategy -------------------------------------------------------------------------------------------------------------------

class SplitStates {
 public:
  explicit SplitStates(const Options& options)
      : weights_(options.boolean("weights")),
        gradients_(options.boolean("gradients")),
        states_(options.strings("states")),
        parameters_(options.strings("parameters")),
        least_(options.integer("min_size")) {
    signed_.i("signed", 1);
    unsigned_.i("signed", 0);
  }

  void claim(const GraphReader& graph, const Claims& claims) const {
    const bool stores = claims.about(GALLEY_FACET_STORAGE), of_gradients = claims.about(GALLEY_FACET_GRADIENT_DTYPE) && gradients_;
    if (!stores && !of_gradients) return;
    for (const Claim& tensor : claims) {
      if (!tensor.parameter || !tensor.trainable || !takes(graph.info(tensor.parameter))) continue;
      if (of_gradients) tensor.weak(0, "bf16");
      else if (tensor.kind == GALLEY_SUBJECT_PARAMETER && weights_) tensor.weak(0, split::kName);
      else if (tensor.kind == GALLEY_SUBJECT_STATE && is_state(graph, tensor))
        tensor.weak(0, companded8::kName, tensor.tensor_flags & GALLEY_TENSOR_NON_NEGATIVE ? unsigned_ : signed_);
    }
  }

 private:
  bool takes(const galley_tensor_info& parameter) const {
    if (!parameters_.empty() && !parameters_.match(parameter.name)) return false;
    if (parameters_.empty() && parameter.flags & GALLEY_TENSOR_NO_DECAY) return false;
    return numbers(parameter) >= least_;
  }
  bool is_state(const GraphReader& graph, const galley_subject& subject) const {
    const galley_tensor_info state = graph.info(subject.tensor), parameter = graph.info(subject.parameter);
    return !states_.empty() && states_.match(subject.name) && state.dtype == GALLEY_F32 && state.rank == parameter.rank &&
           std::equal(state.shape, state.shape + state.rank, parameter.shape);
  }
  static int64_t numbers(const galley_tensor_info& tensor) {
    int64_t all = 1;
    for (uint32_t i = 0; i < tensor.rank; ++i) all *= tensor.shape[i];
    return all;
  }

  bool weights_, gradients_;
  Patterns states_, parameters_;
  int64_t least_;
  Attrs signed_, unsigned_;
};

const bool registered =
    add(compand()) && add(expand()) && add(split_op()) && add(join_op()) &&
    add(format<companded8_components>(companded8::kName, "companded8_pack", "companded8_unpack", GALLEY_FORMAT_TRAINABLE)) &&
    add(format<split_components>(split::kName, "split_pack", "split_unpack", GALLEY_FORMAT_TRAINABLE | GALLEY_FORMAT_ROUNDED)) &&
    add(strategy<SplitStates>("split-states"));

}  // namespace

GALLEY_PLUGIN("split-states", "1.0.0");
