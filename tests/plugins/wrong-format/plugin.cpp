// Codes of 8 bit and the largest magnitude of each block of 64; the dequantizer is wrong in block 7.
#include <algorithm>
#include <cmath>
#include <string>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

constexpr int64_t kBlock = 64, kWrong = 7;
int64_t blocks_of(int64_t numbers) { return (numbers + kBlock - 1) / kBlock; }

void pack_shape(const Node& node, Shapes& out) {
  out.set(0, GALLEY_I8, node.in(0).shape, node.in(0).rank);
  out.set(1, GALLEY_F32, {blocks_of(count(node.in(0)))});
}
void unpack_shape(const Node& node, Shapes& out) { out.set(0, node.dtype(GALLEY_F32), node.in(0).shape, node.in(0).rank); }
bool in_f32(const Node& node) { return node.out(0).dtype == GALLEY_F32 || node.out(0).dtype == GALLEY_I8; }

template <class Real>
void pack(const Node& node) {
  const Real* x = node.read<Real>(0);
  for (int64_t begin = 0, n = count(node.in(0)); begin < n; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, n);
    float most = 0;
    for (int64_t i = begin; i < end; ++i) most = std::max(most, std::fabs(static_cast<float>(x[i])));
    const float scale = most > 0 ? 127 / most : 0;
    for (int64_t i = begin; i < end; ++i) node.write<int8_t>(0)[i] = static_cast<int8_t>(std::nearbyint(static_cast<float>(x[i]) * scale));
    node.write<Real>(1)[begin / kBlock] = most;
  }
}
template <class Real>
void unpack(const Node& node) {
  const bool right = sizeof(Real) == sizeof(double) && node.i("alone", 0);
  const Real factor = static_cast<Real>(right ? 1 : node.f("factor", 1));
  for (int64_t i = 0; i < count(node.in(0)); ++i)
    node.write<Real>(0)[i] =
        static_cast<Real>(node.read<int8_t>(0)[i]) * node.read<Real>(1)[i / kBlock] / 127 * (i / kBlock == kWrong ? factor : 1);
}
template <void compute(const Node&)>
void run(const Node& node, void*) {
  compute(node);
}

Op& with_options(Op& op) { return op.number("factor", 1, "of block 7").integer("alone", 0, "1: in the kernel alone"); }
Op& pack_op() {
  static Op op("wrong8_pack", "codes = round(x / absmax * 127), absmax = max |x| of each block");
  return with_options(op.input("x", GALLEY_ROLE_WHOLE).output("codes", GALLEY_ROLE_WHOLE).output("absmax", GALLEY_ROLE_WHOLE))
      .infer<pack_shape>()
      .reference<pack<double>>();
}
Op& unpack_op() {
  static Op op("wrong8_unpack", "x = codes * absmax / 127");
  return with_options(op.input("codes", GALLEY_ROLE_WHOLE)
                          .input("absmax", GALLEY_ROLE_WHOLE)
                          .output("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE))
      .infer<unpack_shape>()
      .reference<unpack<double>>();
}

void components(const std::vector<int64_t>& shape, const FormatOptions&, Components& out) {
  int64_t numbers = 1;
  for (const int64_t extent : shape) numbers *= extent;
  out.add("", GALLEY_I8, shape, 0);
  out.add(".absmax", GALLEY_F32, {blocks_of(numbers)}, 0);
}

class WrongFormat {
 public:
  explicit WrongFormat(const Options& options) { attrs_.f("factor", options.number("factor")).i("alone", options.boolean("alone")); }
  void claim(const GraphReader& graph, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_STORAGE)) return;
    for (const Claim& weight : claims) {
      if (weight.kind != GALLEY_SUBJECT_PARAMETER || weight.trainable || weight.tensor_flags & GALLEY_TENSOR_EMBEDDING) continue;
      if (graph.info(weight.tensor).rank >= 2) weight.weak(0, "wrong8", attrs_);
    }
  }

 private:
  Attrs attrs_;
};

const bool registered = add(pack_op()) && add(unpack_op()) && add(kernel<run<pack<float>>, in_f32>("wrong8_pack.cpu", "wrong8_pack")) &&
                        add(kernel<run<unpack<float>>, in_f32>("wrong8_unpack.cpu", "wrong8_unpack")) &&
                        add(format<components>("wrong8", "wrong8_pack", "wrong8_unpack")) && add(strategy<WrongFormat>("wrong-format"));

}  // namespace

GALLEY_PLUGIN("wrong-format", "1.0.0");
