// A node of the update that sets a flag in one step, by which the run is done.
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void infer(const Node&, Shapes& out) { out.set(0, GALLEY_I32, {1}); }
void is_step(const Node& node) { node.write<int32_t>(0)[0] = *node.read<int64_t>(0) == node.i("step", 0); }
void run(const Node& node, void*) { is_step(node); }
bool any(const Node&) { return true; }

Op& op() {
  static Op made("is_step", "1 in one step, 0 in the others");
  made.input("attempted_step", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .output("flag", GALLEY_ROLE_WHOLE)
      .integer("step", 0, "which")
      .infer<infer>()
      .reference<is_step>();
  return made;
}

class Ends {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_AFTER;
  explicit Ends(const Options& options) : at_(options.integer("at")) {}

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    const galley_tensor flag = graph.node("is_step", "ends", {graph.scalar(GALLEY_SCALAR_ATTEMPTED_STEP)}, Attrs().i("step", at_))[0];
    graph.end_if(flag, "it has seen enough");
  }

 private:
  int64_t at_;
};

const bool registered = add(op()) && add(kernel<run, any>("is_step.cpu", "is_step")) && add(strategy<Ends>("ends"));

}  // namespace

GALLEY_PLUGIN("ends", "1.0.0");
