// AdamW and Lion with states in 8 bit (Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit optimizers via block-wise quantization", ICLR 2022,
// arXiv:2110.02861). The optimizers are those of `adamw` and `lion`: the same ops, whose kernels read and write the format "dynamic8". What
// is claimed here is that their states are stored so, but for those of embeddings, of norms and biases, and of small tensors. The format
// (galley/cpp/dynamic8.hpp) has ops of its own, which make numbers of codes where somebody else reads them.
#include "codec.hpp"

#include <algorithm>

#include "galley/cpp/optimizer.hpp"

namespace {

using namespace galley::sdk;

// ---- The format ---------------------------------------------------------------------------------------------------------------------

bool signed_of(const Node& node) { return node.i("signed", 1) != 0; }

void pack_shape(const Node& node, Shapes& out) {
  if (node.in(0).dtype != GALLEY_F32) invalid(std::string(node.name()) + ": x has to be F32");
  out.set(0, GALLEY_U8, node.in(0).shape, node.in(0).rank);
  out.set(1, GALLEY_F32, {dynamic8::blocks(count(node.in(0)))});
}
void unpack_shape(const Node& node, Shapes& out) {
  const std::string name = node.name();
  if (node.in(0).dtype != GALLEY_U8 || node.in(1).dtype != GALLEY_F32) invalid(name + ": codes have to be U8, and absmax F32");
  if (node.dtype(GALLEY_F32) != GALLEY_F32) invalid(name + ": dynamic8 is unpacked as F32 only");
  if (count(node.in(1)) != dynamic8::blocks(count(node.in(0))))
    invalid(name + ": " + shape_text(node.in(1)) + " magnitudes for codes " + shape_text(node.in(0)));
  out.set(0, GALLEY_F32, node.in(0).shape, node.in(0).rank);
}

/// Codes are compared exactly, so they are made of float numbers, as kernels make them.
void pack_reference(const Node& node) {
  const int64_t n = count(node.in(0));
  std::vector<float> numbers(node.read<double>(0), node.read<double>(0) + n), absmax(static_cast<size_t>(dynamic8::blocks(n)));
  encode(galley::eight_bit::Dynamic8(node.write<uint8_t>(0), absmax.data(), signed_of(node)), 0, n, numbers.data());
  std::copy(absmax.begin(), absmax.end(), node.write<double>(1));
}
void unpack_reference(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i)
    node.write<double>(0)[i] =
        static_cast<double>(dynamic8::value(node.read<uint8_t>(0)[i], signed_of(node))) * node.read<double>(1)[i / dynamic8::kBlock];
}

Op& pack() {
  static Op op("dynamic8_pack", "codes of x / absmax in a dynamic code book, absmax = max |x| of each 256");
  op.input("x", GALLEY_ROLE_WHOLE)
      .output("codes", GALLEY_ROLE_WHOLE)
      .output("absmax", GALLEY_ROLE_WHOLE)
      .integer("signed", 1, "0: no number is negative")
      .infer<pack_shape>()
      .reference<pack_reference>()
      .test("signed", {{GALLEY_F32, {37, 671}}})
      .test("unsigned", {{GALLEY_F32, {37, 671}, 0, 1e-3}}, Attrs().i("signed", 0))
      .test("one block", {{GALLEY_F32, {256}}})
      .test("less", {{GALLEY_F32, {3}}});
  return op;
}
Op& unpack() {
  static Op op("dynamic8_unpack", "x = entry of the code book * absmax");
  op.input("codes", GALLEY_ROLE_WHOLE)
      .input("absmax", GALLEY_ROLE_WHOLE)
      .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .integer("signed", 1, "0: no number is negative")
      .infer<unpack_shape>()
      .reference<unpack_reference>()
      .test("signed", {{GALLEY_U8, {37, 671}, 0, 255}, {GALLEY_F32, {97}, 0, 1}})
      .test("unsigned", {{GALLEY_U8, {512}, 0, 255}, {GALLEY_F32, {2}, 0, 1}}, Attrs().i("signed", 0));
  return op;
}

void components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  for (const galley_attr* option : options)
    if (!galley_same_text(option->name, "signed")) invalid(std::string("dynamic8 has no option '") + option->name + "'");
  int64_t numbers = 1;
  for (const int64_t extent : shape) numbers *= extent;
  out.add("", GALLEY_U8, shape, 1);
  out.add(".absmax", GALLEY_F32, {dynamic8::blocks(numbers)}, dynamic8::kBlock);
}

// ---- The optimizers -----------------------------------------------------------------------------------------------------------------

/// Which parameters are updated, and which of their states are in 8 bit.
class EightBit {
 public:
  EightBit(const Options& options, const char* name) : updated_(options, name), name_(name), least_(options.integer("min_size")) {
    unsigned_.i("signed", 0);
    signed_.i("signed", 1);
  }
  void claim(const GraphReader& graph, const Claims& claims) const {
    updated_.claim(claims);
    if (!claims.about(GALLEY_FACET_STORAGE)) return;
    for (const Claim& state : claims) {
      if (state.kind != GALLEY_SUBJECT_STATE || !state.parameter || !galley_same_text(state.owner, name_)) continue;
      const galley_tensor_info p = graph.info(state.parameter);
      int64_t numbers = 1;
      for (uint32_t i = 0; i < p.rank; ++i) numbers *= p.shape[i];
      if (p.flags & (GALLEY_TENSOR_EMBEDDING | GALLEY_TENSOR_NO_DECAY) || numbers < least_) continue;
      state.weak(0, dynamic8::kName, state.tensor_flags & GALLEY_TENSOR_NON_NEGATIVE ? unsigned_ : signed_);
    }
  }
  const Updated& updated() const { return updated_; }
  double decay(const Graph& graph, const Trained& trained) const { return updated_.decay(graph.info(trained.parameter)); }

 private:
  Updated updated_;
  const char* name_;
  int64_t least_;
  Attrs signed_, unsigned_;
};

class AdamW8bit {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;
  explicit AdamW8bit(const Options& options) : betas_(options.numbers("betas")), eps_(options.number("eps")), of_(options, "adamw8bit") {}

  void claim(const GraphReader& graph, const Claims& claims) const { of_.claim(graph, claims); }
  void build(UpdateGraph& graph, Trained trained) const {
    StepNode(graph, trained, of_.updated())
        .state("exp_avg")
        .state("exp_avg_sq", GALLEY_TENSOR_NON_NEGATIVE)
        .add("adamw_step", Attrs().f("beta1", betas_[0]).f("beta2", betas_[1]).f("eps", eps_).f("weight_decay", of_.decay(graph, trained)));
  }

 private:
  std::vector<double> betas_;
  double eps_;
  EightBit of_;
};

class Lion8bit {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;
  explicit Lion8bit(const Options& options) : betas_(options.numbers("betas")), of_(options, "lion8bit") {}

  void claim(const GraphReader& graph, const Claims& claims) const { of_.claim(graph, claims); }
  void build(UpdateGraph& graph, Trained trained) const {
    StepNode(graph, trained, of_.updated())
        .state("exp_avg")
        .add("lion_step", Attrs().f("beta1", betas_[0]).f("beta2", betas_[1]).f("weight_decay", of_.decay(graph, trained)));
  }

 private:
  std::vector<double> betas_;
  EightBit of_;
};

const bool registered = add(pack()) && add(unpack()) &&
                        add(format<components>(dynamic8::kName, "dynamic8_pack", "dynamic8_unpack", GALLEY_FORMAT_TRAINABLE)) &&
                        add(strategy<AdamW8bit>("adamw8bit")) && add(strategy<Lion8bit>("lion8bit"));

}  // namespace

GALLEY_PLUGIN("eight-bit", "1.0.0");
