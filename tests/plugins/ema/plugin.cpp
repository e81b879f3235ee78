// For tests: a strategy of the stage AFTER, with a state whose initializer reads another tensor. m = d · m + (1 − d) · p, at applied steps.
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

enum Input : uint32_t { Mean, Parameter, Apply };

void infer(const Node& node, Shapes&) {
  if (count(node.in(Mean)) != count(node.in(Parameter))) invalid("ema_step: mean and parameter differ in size");
}
void reference(const Node& node) {
  if (!*node.read<int32_t>(Apply)) return;
  const double decay = node.f("decay", 0);
  for (int64_t i = 0; i < count(node.in(Mean)); ++i) {
    double& m = node.update<double>(Mean)[i];
    m = decay * m + (1 - decay) * node.read<double>(Parameter)[i];
  }
}

Op& ema_step() {
  static Op op("ema_step", "m = d m + (1 - d) p");
  op.input("mean", GALLEY_ROLE_ROWS, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .input("parameter", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
      .input("apply", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .grain(GALLEY_GRAIN_ELEMENT)
      .number("decay", 0, "of the average")
      .infer<infer>()
      .reference<reference>()
      .test("odd", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}}, {GALLEY_I32, {1}, 1, 1}}, Attrs().f("decay", 0.9));
  return op;
}

class Ema {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_AFTER;
  explicit Ema(const Options& options) : decay_(options.number("decay")), evaluate_(options.boolean("evaluate")) {}

  void build(Graph& graph, Trained trained) const {
    graph.node("ema_step", nullptr, {mean(graph, trained.parameter), trained.parameter, graph.scalar(GALLEY_SCALAR_APPLY)},
               Attrs().f("decay", decay_), {});
  }
  void evaluate(Graph& graph, galley_tensor parameter) const {
    if (evaluate_) graph.eval_as(parameter, mean(graph, parameter));
  }

 private:
  static galley_tensor mean(Graph& graph, galley_tensor parameter) {
    return graph.copy_of(std::string(graph.info(parameter).name) + ".ema", parameter);
  }

  double decay_;
  bool evaluate_;
};

const bool registered = add(ema_step()) && add(strategy<Ema>("ema"));

}  // namespace

GALLEY_PLUGIN("ema", "1.0.0");
