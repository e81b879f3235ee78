// SGD with momentum (Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep learning", ICML 2013),
// as torch.optim.SGD defines it:
//   g = factor · gradient + weight_decay · p
//   b = g at the first step, momentum · b + (1 − dampening) · g later
//   p = p − lr · (b, or g + momentum · b with nesterov; g without momentum)
#include "galley/cpp/optimizer.hpp"

namespace {

using namespace galley::sdk;

void reference_sgd_step(const Node& node) {
  const double momentum = node.f("momentum", 0), dampening = node.f("dampening", 0), decay = node.f("weight_decay", 0);
  const bool nesterov = node.i("nesterov", 0) != 0;
  reference_steps(node, [&](const StepElement& e) {
    double g = e.gradient + decay * e.parameter;
    if (e.has(0)) {
      double& buffer = e.state(0);
      buffer = e.step == 1 ? g : momentum * buffer + (1 - dampening) * g;
      g = nesterov ? g + momentum * buffer : buffer;
    }
    e.parameter -= e.lr * g;
  });
}

Op& sgd_step() {
  static StepOp op("sgd_step", "one step of stochastic gradient descent, with a momentum buffer or without");
  op.state("momentum_buffer", -1, 1, GALLEY_OPERAND_OPTIONAL);
  op.number("momentum", 0, "decay of the velocity")
      .number("dampening", 0, "by which the gradient enters it less")
      .number("weight_decay", 0, "times the parameter: added to the gradient")
      .integer("nesterov", 0, "1: Nesterov momentum")
      .reference<reference_sgd_step>();
  op.test("plain", {.shape = {7, 5}, .step = 3, .states = 0})
      .test("decay", {.shape = {37, 671}, .states = 0}, Attrs().f("weight_decay", 0.1))
      .test("first", {.shape = {33}}, Attrs().f("momentum", 0.9).f("dampening", 0.5))
      .test("first of nesterov", {.shape = {33}}, Attrs().f("momentum", 0.9).i("nesterov", 1))
      .test("momentum", {.shape = {37, 671}, .step = 2}, Attrs().f("momentum", 0.9).f("dampening", 0.5).f("weight_decay", 0.1))
      .test("nesterov", {.shape = {131, 67}, .step = 2}, Attrs().f("momentum", 0.9).i("nesterov", 1))
      .test("skipped", {.shape = {7, 5}, .step = 2, .apply = false}, Attrs().f("momentum", 0.9))
      .test("bf16", {.shape = {37, 671}, .step = 3, .gradient = GALLEY_BF16, .states = 0})
      .test("bf16 first", {.shape = {33}, .gradient = GALLEY_BF16}, Attrs().f("momentum", 0.9))
      .test("f16", {.shape = {131, 67}, .step = 2, .gradient = GALLEY_F16}, Attrs().f("momentum", 0.9).i("nesterov", 1));
  return op;
}

class Sgd {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit Sgd(const Options& options)
      : momentum_(options.number("momentum")),
        dampening_(options.number("dampening")),
        updated_(options, "sgd"),
        nesterov_(options.boolean("nesterov")) {
    if (nesterov_ && (momentum_ == 0 || dampening_ != 0)) invalid("nesterov takes a momentum and no dampening");
  }

  void claim(const GraphReader&, const Claims& claims) const { updated_.claim(claims); }

  void build(UpdateGraph& graph, Trained trained) const {
    StepNode(graph, trained, updated_)
        .state_if(momentum_ != 0, "momentum_buffer")
        .add("sgd_step", Attrs()
                             .f("momentum", momentum_)
                             .f("dampening", dampening_)
                             .f("weight_decay", updated_.decay(graph.info(trained.parameter)))
                             .i("nesterov", nesterov_));
  }

 private:
  double momentum_, dampening_;
  Updated updated_;
  bool nesterov_;
};

const bool registered = add(sgd_step()) && add(strategy<Sgd>("sgd"));

}  // namespace

GALLEY_PLUGIN("sgd", "1.0.0");
