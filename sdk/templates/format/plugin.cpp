// A format as a Galley plugin: frozen weights in 8 bit. A block of consecutive numbers has a scale, its largest magnitude:
//   code = round(x / absmax · 127),   x ≈ code · absmax / 127
//
// A format says what a tensor's bytes are, and names two ops that convert them. The host keeps the components instead of the tensor, and
// puts a node of the unpack op before each node whose kernel does not read the format: products and look-ups of embeddings read each format
// that has a codec (cpu.cpp). The shapes that `components` says and those of the ops' shape rules have to be the same: memory goes by the
// one, and kernels go by the other.
#include <galley/cpp/strategy.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace galley::sdk;

int64_t blocks_of(int64_t numbers, int64_t block) { return (numbers + block - 1) / block; }
int64_t block_of(const Node& node) { return node.i("block", 64); }

// ---- The ops ----------------------------------------------------------------------------------------------------------------------

// Both have the format's options as attributes. Unpacking has the attribute "dtype" besides, as its output is of any dtype: what the
// readers of the tensor want.
void check_block(const Node& node) {
  if (block_of(node) < 1) invalid(std::string(node.name()) + ": block = " + std::to_string(block_of(node)) + "; it has to be at least 1");
}
void pack_shape(const Node& node, Shapes& out) {
  if (node.in(0).dtype != GALLEY_F32) invalid(std::string(node.name()) + ": x has to be F32");
  check_block(node);
  out.set(0, GALLEY_I8, node.in(0).shape, node.in(0).rank);
  out.set(1, GALLEY_F32, {blocks_of(count(node.in(0)), block_of(node))});
}
void unpack_shape(const Node& node, Shapes& out) {
  if (node.in(0).dtype != GALLEY_I8 || node.in(1).dtype != GALLEY_F32)
    invalid(std::string(node.name()) + ": codes have to be I8, and absmax F32");
  check_block(node);
  if (count(node.in(1)) != blocks_of(count(node.in(0)), block_of(node)))
    invalid(std::string(node.name()) + ": " + shape_text(node.in(1)) + " scales for codes " + shape_text(node.in(0)));
  out.set(0, node.dtype(GALLEY_F32), node.in(0).shape, node.in(0).rank);
}

// The definitions. Floating-point operands are passed as double, integers as they are. Codes are compared exactly, so they are made of
// float numbers as the kernel makes them.
void pack_reference(const Node& node) {
  const int64_t n = count(node.in(0)), block = block_of(node);
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(begin + block, n);
    const double* x = node.read<double>(0);
    double absmax = 0;
    for (int64_t i = begin; i < end; ++i) absmax = std::max(absmax, std::fabs(x[i]));
    const float scale = absmax > 0 ? 127.0f / static_cast<float>(absmax) : 0;
    for (int64_t i = begin; i < end; ++i) node.write<int8_t>(0)[i] = static_cast<int8_t>(std::nearbyint(static_cast<float>(x[i]) * scale));
    node.write<double>(1)[begin / block] = absmax;
  }
}
void unpack_reference(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i)
    node.write<double>(0)[i] = node.read<int8_t>(0)[i] * node.read<double>(1)[i / block_of(node)] / 127;
}

Op pack("q8_pack", "codes = round(x / absmax * 127), absmax = max |x| of each block; x F32, codes I8, absmax F32 (blocks)");
Op unpack("q8_unpack", "x = codes * absmax / 127");
const bool ops_added =
    add(pack.input("x", GALLEY_ROLE_WHOLE)
            .output("codes", GALLEY_ROLE_WHOLE)
            .output("absmax", GALLEY_ROLE_WHOLE)
            .integer("block", 64, "numbers that share a scale")
            .infer<pack_shape>()
            .reference<pack_reference>()
            .test("whole", {{GALLEY_F32, {37, 64}}})
            .test("rest", {{GALLEY_F32, {5, 67}, -1e-3, 1e3}}, Attrs().i("block", 32))) &&
    add(unpack.input("codes", GALLEY_ROLE_WHOLE)
            .input("absmax", GALLEY_ROLE_WHOLE)
            .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
            .integer("block", 64, "numbers that share a scale")
            .infer<unpack_shape>()
            .reference<unpack_reference>()
            .test("whole", {{GALLEY_I8, {37, 64}, -127, 127}, {GALLEY_F32, {37}, 0, 2}})
            .test("rest", {{GALLEY_I8, {5, 67}, -127, 127}, {GALLEY_F32, {11}, 0, 2}}, Attrs().i("block", 32))
            .test("bf16", {{GALLEY_I8, {5, 67}, -127, 127}, {GALLEY_F32, {11}, 0, 2}}, Attrs().i("block", 32).s("dtype", "bf16")));

// ---- The format -------------------------------------------------------------------------------------------------------------------

// The components of a tensor of this shape. A component without a suffix has the tensor's own name in files. The last argument is how many
// numbers one element stands for: with it, the host converts parts of a tensor by themselves. An option that is not known is refused.
void components(const std::vector<int64_t>& shape, const FormatOptions& options, Components& out) {
  int64_t block = 64, numbers = 1;
  for (const galley_attr* option : options) {
    if (!galley_same_text(option->name, "block")) invalid(std::string("q8 has no option '") + option->name + "'");
    block = *static_cast<const int64_t*>(option->data);
  }
  for (const int64_t extent : shape) numbers *= extent;
  out.add("", GALLEY_I8, shape, 1);
  out.add(".absmax", GALLEY_F32, {blocks_of(numbers, block)}, block);
}

// Not exact, and for frozen tensors only: an update would lose its small steps to rounding.
const bool format_added = add(format<components>("q8", "q8_pack", "q8_unpack"));

// ---- The strategy that asks for it ------------------------------------------------------------------------------------------------

class Q8 {
 public:
  explicit Q8(const Options& options) { attrs_.i("block", options.integer("block")); }

  // Asked after TRAINABLE, so `trainable` is known. Weakly: whoever wants a weight in another format says so strongly.
  void claim(const GraphReader& graph, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_STORAGE)) return;
    for (const Claim& weight : claims) {
      if (weight.kind != GALLEY_SUBJECT_PARAMETER || weight.trainable || weight.tensor_flags & GALLEY_TENSOR_EMBEDDING) continue;
      if (graph.info(weight.tensor).rank >= 2) weight.weak(0, "q8", attrs_);
    }
  }

 private:
  Attrs attrs_;
};

const bool strategy_added = add(strategy<Q8>("q8"));

}  // namespace

GALLEY_PLUGIN("q8", "1.0.0");
