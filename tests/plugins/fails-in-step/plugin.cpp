// A node of the update whose kernel answers GALLEY_FAILED at one step.
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void infer_nothing(const Node&, Shapes&) {}
void reference_nothing(const Node&) {}

Op& fails_in_step() {
  static Op op("fails_in_step", "nothing, or a failure");
  op.input("attempted_step", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .input("factor", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .integer("step", 0, "in which it fails")
      .infer<infer_nothing>()
      .reference<reference_nothing>();
  return op;
}

void run(const Node& node, void*) {
  const int64_t step = *node.read<int64_t>(0);
  if (step == node.i("step", 0)) throw Failure(GALLEY_FAILED, "told to fail in step " + std::to_string(step));
}

class FailsInStep {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_CLIP;
  explicit FailsInStep(const Options& options) : step_(options.integer("step")) {}

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    graph.node("fails_in_step", nullptr, {graph.scalar(GALLEY_SCALAR_ATTEMPTED_STEP), graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR)},
               Attrs().i("step", step_), {});
  }

 private:
  int64_t step_;
};

const bool registered =
    add(fails_in_step()) && add(kernel<run>("fails_in_step.cpu", "fails_in_step")) && add(strategy<FailsInStep>("fails-in-step"));

}  // namespace

GALLEY_PLUGIN("fails-in-step", "1.0.0");
