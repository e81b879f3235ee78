// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023, arXiv:2302.06675), as bitsandbytes.optim.Lion defines it:
//   g = factor · gradient,   c = β₁ m + (1 − β₁) g,   m = β₂ m + (1 − β₂) g
//   p = p (1 − lr · weight_decay) − lr · sign(c)
#include "galley/cpp/optimizer.hpp"

namespace {

using namespace galley::sdk;

void reference_lion_step(const Node& node) {
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.99), decay = node.f("weight_decay", 0);
  reference_steps(node, [&](const StepElement& e) {
    double &p = e.parameter, &m = e.state(0);
    // Beside 0, the sign is that of the sum in F32, as kernels make it.
    const float c = static_cast<float>(beta1) * static_cast<float>(m) + static_cast<float>(1 - beta1) * static_cast<float>(e.gradient);
    m = beta2 * m + (1 - beta2) * e.gradient;
    p = p * (1 - e.lr * decay) - e.lr * ((c > 0) - (c < 0));
  });
}

Op& lion_step() {
  static StepOp op("lion_step", "one step of Lion");
  op.state("exp_avg");
  op.number("beta1", 0.9, "share of the momentum in what the sign is taken of")
      .number("beta2", 0.99, "decay of the momentum")
      .number("weight_decay", 0, "times lr: by which the parameter shrinks")
      .reference<reference_lion_step>();
  const auto attrs = [](double decay) { return Attrs().f("beta1", 0.85).f("beta2", 0.95).f("weight_decay", decay); };
  op.test("decay", {.shape = {37, 671}}, attrs(0.1))
      .test("no decay", {.shape = {7, 5}}, attrs(0))
      .test("skipped", {.shape = {7, 5}, .apply = false}, attrs(0.1))
      .test("bf16", {.shape = {131, 67}, .gradient = GALLEY_BF16}, attrs(0.1))
      .test("f16", {.shape = {33}, .gradient = GALLEY_F16}, attrs(0.1));
  return op;
}

class Lion {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit Lion(const Options& options) : betas_(options.numbers("betas")), updated_(options, "lion") {}

  void claim(const GraphReader&, const Claims& claims) const { updated_.claim(claims); }

  void build(UpdateGraph& graph, Trained trained) const {
    StepNode(graph, trained, updated_)
        .state("exp_avg")
        .add("lion_step",
             Attrs().f("beta1", betas_[0]).f("beta2", betas_[1]).f("weight_decay", updated_.decay(graph.info(trained.parameter))));
  }

 private:
  std::vector<double> betas_;
  Updated updated_;
};

const bool registered = add(lion_step()) && add(strategy<Lion>("lion"));

}  // namespace

GALLEY_PLUGIN("lion", "1.0.0");
