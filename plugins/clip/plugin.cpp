// Clipping by the global norm (Pascanu, Mikolov, Bengio 2013, arXiv:1211.5063), as torch.nn.utils.clip_grad_norm_ computes it. The norm
// is there already: what is added is one scalar. Optimizers multiply gradients by it as they read them, so that no gradient is written a
// second time.
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void infer_clip_factor(const Node& node, Shapes&) {
  if (count(node.in(0)) != 1 || count(node.in(1)) != 1)
    invalid(std::string(node.name()) + ": norm " + shape_text(node.in(0)) + " and factor " + shape_text(node.in(1)) +
            " have to be one element each");
  if (node.in(0).dtype != GALLEY_F32 || node.in(1).dtype != GALLEY_F32)
    invalid(std::string(node.name()) + ": norm and factor have to be F32");
}

void reference_clip_factor(const Node& node) {
  const double room = node.f("max_norm", 1.0) / (*node.read<double>(0) + 1e-6);
  *node.update<double>(1) *= room > 1.0 ? 1.0 : room;
}

Op& clip_factor() {
  static Op op("clip_factor", "factor *= min(1, max_norm / (norm + 1e-6))");
  op.input("norm", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .input("factor", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .number("max_norm", 1, "of all gradients")
      .infer<infer_clip_factor>()
      .reference<reference_clip_factor>()
      .test("above", {{GALLEY_F32, {1}, 2, 3}, {GALLEY_F32, {1}, 0.5, 1}}, Attrs().f("max_norm", 1.0))
      .test("below", {{GALLEY_F32, {1}, 0, 0.5}, {GALLEY_F32, {1}, 1, 1}}, Attrs().f("max_norm", 1.0));
  return op;
}

class Clip {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_CLIP;
  explicit Clip(const Options& options) : norm_(options.number("norm")) {}

  void build(Graph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    graph.node("clip_factor", nullptr, {graph.scalar(GALLEY_SCALAR_GRADIENT_NORM), graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR)},
               Attrs().f("max_norm", norm_), {});
  }

 private:
  double norm_;
};

const bool registered = add(clip_factor()) && add(strategy<Clip>("clip"));

}  // namespace

GALLEY_PLUGIN("clip", "1.0.0");
