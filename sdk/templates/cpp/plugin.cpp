// An optimizer as a Galley plugin: signSGD with momentum, "Signum" (Bernstein et al. 2018, arXiv:1802.04434):
//   m = momentum · m + (1 − momentum) · factor · g,   p = p − lr · sign(m)
//
// A strategy has no code that runs during training, except kernels. So there are three parts: an op (what a node does) and a strategy
// (which adds such nodes to the graph) in this file, and a kernel (how the CPU computes the op) in cpu.cpp. An exception becomes an error
// message for the author of the recipe.
#include <galley/cpp/strategy.hpp>

namespace {

using namespace galley::sdk;

// ---- The op: its operands, its shape rule, and what it means --------------------------------------------------------------------

enum Input : uint32_t { Parameter, Gradient, Rate, Factor, Apply, Momentum };

// The op has no outputs, so there are no shapes to infer. It only checks its inputs.
void infer(const Node& node, Shapes&) {
  if (count(node.in(Gradient)) != count(node.in(Parameter)))
    invalid(std::string(node.name()) + ": parameter " + shape_text(node.in(Parameter)) + " and gradient " + shape_text(node.in(Gradient)) +
            " differ");
}

// The definition, in double precision. Tests compare kernels with it. Floating-point operands are passed as double.
void reference(const Node& node) {
  if (!*node.read<int32_t>(Apply)) return;  // a skipped step changes nothing
  const double lr = *node.read<double>(Rate), factor = *node.read<double>(Factor), momentum = node.f("momentum", 0);
  const double* gradient = node.read<double>(Gradient);
  double* p = node.update<double>(Parameter);
  double* mean = node.has(Momentum) ? node.update<double>(Momentum) : nullptr;
  for (int64_t i = 0; i < count(node.in(Parameter)); ++i) {
    double g = factor * gradient[i];
    if (mean) g = mean[i] = momentum * mean[i] + (1 - momentum) * g;
    p[i] -= lr * ((g > 0) - (g < 0));
  }
}

// INOUT: updated in place. ROWS: row i of one operand belongs to row i of the others. ELEMENT: any part can be computed by itself.
Op signsgd_step("signsgd_step", "p = p - lr · sign(m), m the running mean of the gradient");
const bool op_added =
    add(signsgd_step.input("parameter", GALLEY_ROLE_ROWS, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
            .input("gradient", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
            .input("lr", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("gradient_factor", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("apply", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("momentum", GALLEY_ROLE_ROWS, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT | GALLEY_OPERAND_OPTIONAL)
            .grain(GALLEY_GRAIN_ELEMENT)
            .number("momentum", 0, "decay of the running mean")
            .infer<infer>()
            .reference<reference>());

// ---- The strategy: which parameters it updates, and with which nodes --------------------------------------------------------------

class SignSgd {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit SignSgd(const Options& options) : momentum_(options.number("momentum")) {}

  // Called for each property of each tensor. Claims the update of every trainable parameter, weakly: a strong claim of another strategy
  // wins.
  void claim(const GraphReader&, const galley_subject& subject, Claim& out) const {
    if (subject.facet == GALLEY_FACET_UPDATE && subject.trainable) out.weak(0, "signsgd");
  }

  // Called once for each parameter whose update it won. A state is a tensor: it is planned, saved and resumed like any other. `rate`
  // returns a scalar that follows the recipe's schedule for this parameter. The gradient factor contains clipping and unscaling.
  void build(Graph& graph, Trained trained) const {
    const galley_tensor_info p = graph.info(trained.parameter);
    const galley_tensor mean = momentum_ > 0 ? graph.state(std::string(p.name) + ".momentum", p) : 0;
    graph.node("signsgd_step", nullptr,
               {trained.parameter, trained.gradient, graph.rate("lr", trained.parameter), graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR),
                graph.scalar(GALLEY_SCALAR_APPLY), mean},
               Attrs().f("momentum", momentum_), {});
  }

 private:
  double momentum_;
};

const bool strategy_added = add(strategy<SignSgd>("signsgd"));

}  // namespace

GALLEY_PLUGIN("signsgd", "1.0.0");
