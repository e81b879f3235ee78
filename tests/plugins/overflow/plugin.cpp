// A node of the stage CHECK that finds the gradients of some steps infinite. It stands before the loss scale's, whose strategy comes after
// this one in the recipe.
#include <algorithm>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void infer(const Node&, Shapes&) {}

template <class T>
void overflow_in_steps(const Node& node) {
  const galley_attr* steps = galley_attr_find(node.view(), "steps");
  const auto* first = static_cast<const double*>(steps->data);
  if (std::find(first, first + steps->count, static_cast<double>(*node.read<int64_t>(0))) == first + steps->count) return;
  *node.update<int32_t>(1) = 1;
  *node.update<T>(2) = static_cast<T>(__builtin_inf());
}
void run(const Node& node, void*) { overflow_in_steps<float>(node); }
bool any(const Node&) { return true; }

Op& op() {
  static Op made("overflow_in_steps", "found_inf = 1 and norm = infinity in the attempted steps of the attribute steps");
  constexpr uint64_t updated = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT;
  made.input("attempted_step", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .input("found_inf", GALLEY_ROLE_WHOLE, updated)
      .input("norm", GALLEY_ROLE_WHOLE, updated)
      .attr("steps", GALLEY_ATTR_F64, GALLEY_ATTR_REQUIRED | GALLEY_ATTR_LIST, "attempted steps, from 1")
      .infer<infer>()
      .reference<overflow_in_steps<double>>();
  return made;
}

class Overflow {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_CHECK;
  static constexpr uint32_t order = GALLEY_ORDER_FIRST;  // a loss scale reads what this writes
  explicit Overflow(const Options& options) { attrs_.numbers("steps", options.numbers("steps")); }

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    graph.node(
        "overflow_in_steps", nullptr,
        {graph.scalar(GALLEY_SCALAR_ATTEMPTED_STEP), graph.scalar(GALLEY_SCALAR_FOUND_INF), graph.scalar(GALLEY_SCALAR_GRADIENT_NORM)},
        attrs_, {});
  }

 private:
  Attrs attrs_;
};

const bool registered =
    add(op()) && add(kernel<run, any>("overflow_in_steps.cpu", "overflow_in_steps")) && add(strategy<Overflow>("overflow"));

}  // namespace

GALLEY_PLUGIN("overflow", "1.0.0");
