// AdamW (Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019, arXiv:1711.05101), as torch.optim.AdamW defines it; t is
// the applied step:
//   g = factor · gradient
//   p = p − lr · weight_decay · p
//   m = m + (1 − β₁) (g − m),  v = β₂ v + (1 − β₂) g²
//   p = p − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
// With amsgrad (Reddi, Kale, Kumar, ICLR 2018) the root is that of the largest v so far. The op also makes the steps of Adam (Kingma, Ba,
// ICLR 2015, arXiv:1412.6980): with `coupled`, g = factor · gradient + weight_decay · p, and the parameter does not shrink besides.
#include <algorithm>
#include <cmath>

#include "galley/cpp/optimizer.hpp"

namespace {

using namespace galley::sdk;

enum State : size_t { Mean, Square, Largest };

void reference_adamw_step(const Node& node) {
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.999), eps = node.f("eps", 1e-8), decay = node.f("weight_decay", 0);
  const bool coupled = node.i("coupled", 0) != 0;
  reference_steps(node, [&](const StepElement& e) {
    double &p = e.parameter, &m = e.state(Mean), &v = e.state(Square);
    const double g = coupled ? e.gradient + decay * p : e.gradient;
    m += (1 - beta1) * (g - m);
    v = beta2 * v + (1 - beta2) * g * g;
    if (e.has(Largest)) e.state(Largest) = std::max(e.state(Largest), v);
    const double root = std::sqrt(e.has(Largest) ? e.state(Largest) : v) / std::sqrt(1 - std::pow(beta2, e.step));
    if (!coupled) p -= e.lr * decay * p;
    p -= e.lr / (1 - std::pow(beta1, e.step)) * m / (root + eps);
  });
}

Op& adamw_step() {
  static StepOp op("adamw_step", "one step of AdamW, or of Adam");
  op.state("exp_avg").state("exp_avg_sq", 0, 1).state("max_exp_avg_sq", 0, 1, GALLEY_OPERAND_OPTIONAL);
  op.number("beta1", 0.9, "decay of the mean of gradients")
      .number("beta2", 0.999, "decay of the mean of their squares")
      .number("eps", 1e-8, "added to the root of the mean of squares")
      .number("weight_decay", 0, "times lr: by which the parameter shrinks; with coupled: times the parameter, added to the gradient")
      .integer("coupled", 0, "1: Adam, whose weight decay is part of the gradient")
      .reference<reference_adamw_step>();
  const auto attrs = [](double decay) { return Attrs().f("beta1", 0.85).f("beta2", 0.95).f("eps", 1e-6).f("weight_decay", decay); };
  op.test("first", {.shape = {7, 5}, .states = 2}, attrs(0.1))
      .test("later", {.shape = {37, 671}, .step = 100, .states = 2}, attrs(0.1))
      .test("no decay", {.shape = {131, 67}, .step = 2, .states = 2}, attrs(0))
      .test("amsgrad", {.shape = {37, 671}, .step = 10}, attrs(0.1))
      .test("coupled", {.shape = {37, 671}, .step = 10, .states = 2}, attrs(0.1).i("coupled", 1))
      .test("coupled amsgrad", {.shape = {131, 67}, .step = 10}, attrs(0.1).i("coupled", 1))
      .test("skipped", {.shape = {7, 5}, .step = 10, .apply = false, .states = 2}, attrs(0.1))
      .test("bf16", {.shape = {37, 671}, .step = 100, .gradient = GALLEY_BF16, .states = 2}, attrs(0.1))
      .test("f16", {.shape = {37, 671}, .step = 10, .gradient = GALLEY_F16}, attrs(0.1));
  return op;
}

class AdamW {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit AdamW(const Options& options)
      : betas_(options.numbers("betas")), eps_(options.number("eps")), updated_(options, "adamw"), amsgrad_(options.boolean("amsgrad")) {}

  void claim(const GraphReader&, const Claims& claims) const { updated_.claim(claims); }

  void build(UpdateGraph& graph, Trained trained) const {
    StepNode(graph, trained, updated_)
        .state("exp_avg")
        .state("exp_avg_sq", GALLEY_TENSOR_NON_NEGATIVE)
        .state_if(amsgrad_, "max_exp_avg_sq", GALLEY_TENSOR_NON_NEGATIVE)
        .add("adamw_step", Attrs()
                               .f("beta1", betas_[0])
                               .f("beta2", betas_[1])
                               .f("eps", eps_)
                               .f("weight_decay", updated_.decay(graph.info(trained.parameter))));
  }

 private:
  std::vector<double> betas_;
  double eps_;
  Updated updated_;
  bool amsgrad_;
};

const bool registered = add(adamw_step()) && add(strategy<AdamW>("adamw"));

}  // namespace

GALLEY_PLUGIN("adamw", "1.0.0");
