// The same run with other rounding errors: it computes gradients at a factor of the loss, and optimizers divide by the loss scale as they
// read them. What a run changes by so is what rounding alone does to it; to run a program again with other rounding errors, and to look at
// what differs, is Parker's "Monte Carlo Arithmetic" (1997, UCLA CSD-970002). Here errors are not random, so that the run can be repeated.
//
// Of three quarters, every product of backward is rounded otherwise; of a power of two none would. Below 1, nothing overflows in 16 bit
// that would not without it.
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void infer_scale_loss(const Node& node, Shapes&) {
  if (count(node.in(0)) != 1 || node.in(0).dtype != GALLEY_F32)
    invalid(std::string(node.name()) + ": loss_scale " + shape_text(node.in(0)) + " has to be one element, F32");
}

void reference_scale_loss(const Node& node) { *node.update<double>(0) *= node.f("factor", 1); }

Op& scale_loss() {
  static Op op("scale_loss", "loss_scale *= factor: gradients are the same numbers, rounded otherwise");
  op.flags(GALLEY_OP_PRIVATE)
      .input("loss_scale", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .attr("factor", GALLEY_ATTR_F64, GALLEY_ATTR_REQUIRED, "by which it is multiplied")
      .infer<infer_scale_loss>()
      .reference<reference_scale_loss>()
      .test("some", {{GALLEY_F32, {1}, 1, 70000}}, Attrs().f("factor", 0.75));
  return op;
}

class Perturb {
 public:
  static constexpr uint32_t phase = GALLEY_PHASE_READ + 1;  // after whoever chooses the loss scale
  explicit Perturb(const Options& options) : factor_(options.number("factor")) {}

  void window(Graph& graph) const {
    graph.node("scale_loss", nullptr, {graph.scalar(GALLEY_SCALAR_LOSS_SCALE)}, Attrs().f("factor", factor_), {});
  }

 private:
  double factor_;
};

const bool registered = add(scale_loss()) && add(strategy<Perturb>("perturb"));

}  // namespace

GALLEY_PLUGIN("perturb", "1.0.0");
