// An optimizer as a Galley plugin: signSGD with momentum, "Signum" (Bernstein et al. 2018, arXiv:1802.04434):
//   m = momentum · m + (1 − momentum) · factor · g,   p = p − lr · sign(m)
//
// A strategy has no code that runs during training, except kernels. So there are three parts: an op (what a node does) and a strategy
// (which adds such nodes to the graph) in this file, and a kernel (how the CPU computes the op), which cpu.cpp makes of the arithmetic in
// rule.hpp. An exception becomes an error message for the author of the recipe.
#include <galley/cpp/optimizer.hpp>

namespace {

using namespace galley::sdk;

// ---- The op: its operands, and what it means --------------------------------------------------------------------------------------

// The definition, in double precision. Tests compare kernels with it.
void reference(const Node& node) {
  const double momentum = node.f("momentum", 0);
  reference_steps(node, [&](const StepElement& e) {
    double g = e.gradient;  // multiplied by the factor of clipping and unscaling
    if (e.has(0)) g = e.state(0) = momentum * e.state(0) + (1 - momentum) * g;
    e.parameter -= e.lr * ((g > 0) - (g < 0));
  });
}

// StepOp declares what every step has: parameter, gradient, lr, … (StepInput in rule.hpp), and checks shapes and dtypes.
Op& signsgd_step() {
  static StepOp op("signsgd_step", "p = p - lr · sign(m), m the running mean of the gradient");
  op.state("momentum", -1, 1, GALLEY_OPERAND_OPTIONAL);
  op.number("momentum", 0, "decay of the running mean").reference<reference>();
  op.test("plain", {.shape = {37, 671}, .states = 0}).test("momentum", {.shape = {37, 671}}, Attrs().f("momentum", 0.9));
  return op;
}

// ---- The strategy: which parameters it updates, and with which nodes --------------------------------------------------------------

class SignSgd {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit SignSgd(const Options& options) : momentum_(options.number("momentum")) {}

  // Called for each property of each tensor. Claims the update of every trainable parameter, weakly: a strong claim of another strategy
  // wins.
  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_UPDATE)) return;
    for (const Claim& parameter : claims)
      if (parameter.trainable) parameter.weak(0, "signsgd");
  }

  // Called once for each parameter whose update it won. A state is a tensor: it is planned, saved and resumed like any other.
  void build(UpdateGraph& graph, Trained trained) const {
    StepNode(graph, trained).state_if(momentum_ > 0, "momentum").add("signsgd_step", Attrs().f("momentum", momentum_));
  }

 private:
  double momentum_;
};

const bool added = add(signsgd_step()) && add(strategy<SignSgd>("signsgd"));

}  // namespace

GALLEY_PLUGIN("signsgd", "1.0.0");
