// Clipping by the global norm (Pascanu, Mikolov, Bengio 2013, arXiv:1211.5063), as torch.nn.utils.clip_grad_norm_ computes it. The norm
// is there already: what is added is one scalar. Optimizers multiply gradients by it as they read them, so that no gradient is written a
// second time.
//
// Clipping by value (Mikolov, "Statistical Language Models Based on Neural Networks", PhD thesis, 2012), as
// torch.nn.utils.clip_grad_value_: each element is clamped in place. Optimizers multiply by the gradient factor later, so the limit is
// divided by it: it holds for the mean gradient of the window, whatever the loss scale. With a norm, the factor has that in it: gradients
// are scaled first and clamped then.
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
  op.flags(GALLEY_OP_PRIVATE)
      .input("norm", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .input("factor", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .number("max_norm", 1, "of all gradients")
      .infer<infer_clip_factor>()
      .reference<reference_clip_factor>()
      .test("above", {{GALLEY_F32, {1}, 2, 3}, {GALLEY_F32, {1}, 0.5, 1}}, Attrs().f("max_norm", 0.7))
      .test("below", {{GALLEY_F32, {1}, 0, 0.5}, {GALLEY_F32, {1}, 1, 1}}, Attrs().f("max_norm", 1.0));
  return op;
}

void infer_clip_values(const Node& node, Shapes&) {
  const uint32_t dtype = node.in(0).dtype;
  if (dtype != GALLEY_F32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16)
    invalid(std::string(node.name()) + ": the gradient has to be F32, BF16 or F16");
  if (count(node.in(1)) != 1 || node.in(1).dtype != GALLEY_F32)
    invalid(std::string(node.name()) + ": factor " + shape_text(node.in(1)) + " has to be one element, F32");
}

void reference_clip_values(const Node& node) {
  const double limit = node.f("max_value", 1.0) / *node.read<double>(1);
  double* gradient = node.update<double>(0);
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    if (gradient[i] > limit) gradient[i] = limit;
    if (gradient[i] < -limit) gradient[i] = -limit;
  }
}

Op& clip_values() {
  static Op op("clip_values", "gradient = min(max(gradient, -max_value / factor), max_value / factor)");
  op.flags(GALLEY_OP_PRIVATE)
      .input("gradient", GALLEY_ROLE_ROWS, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT | GALLEY_OPERAND_ANY_DTYPE)
      .input("factor", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .number("max_value", 1, "of an element, times the factor")
      .grain(GALLEY_GRAIN_ELEMENT)
      .infer<infer_clip_values>()
      .reference<reference_clip_values>();
  for (const auto& [name, dtype] : {std::pair{"f32", GALLEY_F32}, {"bf16", GALLEY_BF16}, {"f16", GALLEY_F16}})
    op.test(name, {{dtype, {37, 671}}, {GALLEY_F32, {1}, 0.5, 0.5}}, Attrs().f("max_value", 0.125));
  op.test("factor", {{GALLEY_F32, {131, 67}}, {GALLEY_F32, {1}, 0.5, 2}}, Attrs().f("max_value", 0.3))
      .test("none", {{GALLEY_F32, {33}}, {GALLEY_F32, {1}, 0.5, 1}}, Attrs().f("max_value", 2));
  return op;
}

class Clip {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_CLIP | GALLEY_STAGE_GRADIENT;
  explicit Clip(const Options& options) : norm_(options.number("norm", 0)), value_(options.number("value", 0)) {
    if (norm_ <= 0 && value_ <= 0) invalid("neither 'norm' nor 'value' is given", "give one of them, or both");
  }

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    const galley_tensor factor = graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR);
    if (call.stage == GALLEY_STAGE_CLIP && norm_ > 0)
      graph.node("clip_factor", nullptr, {graph.scalar(GALLEY_SCALAR_GRADIENT_NORM), factor}, Attrs().f("max_norm", norm_), {});
    if (call.stage == GALLEY_STAGE_GRADIENT && value_ > 0)
      for (const Trained& trained : call.trained)
        graph.node("clip_values", nullptr, {trained.gradient, factor}, Attrs().f("max_value", value_), {});
  }

 private:
  double norm_, value_;  // 0: not by this
};

const bool registered = add(clip_factor()) && add(clip_values()) && add(strategy<Clip>("clip"));

}  // namespace

GALLEY_PLUGIN("clip", "1.0.0");
