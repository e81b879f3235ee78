// AdamW (Loshchilov, Hutter, "Decoupled weight decay regularization", ICLR 2019, arXiv:1711.05101), as torch.optim.AdamW defines it; t is
// the applied step:
//   g = factor · gradient
//   p = p − lr · weight_decay · p
//   m = m + (1 − β₁) (g − m),  v = β₂ v + (1 − β₂) g²
//   p = p − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)
// With amsgrad (Reddi, Kale, Kumar, ICLR 2018) the root is that of the largest v so far.
#include <algorithm>
#include <cmath>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

enum Input : uint32_t { Parameter, Gradient, Mean, Square, Rate, Step, Factor, Apply, Largest };

void infer_adamw_step(const Node& node, Shapes&) {
  if (const uint32_t dtype = node.in(Gradient).dtype; dtype != GALLEY_F32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16)
    invalid(std::string(node.name()) + ": the gradient has to be F32, BF16 or F16");
  for (const uint32_t i : {Parameter, Mean, Square, Rate, Factor, Largest})
    if (node.has(i) && node.in(i).dtype != GALLEY_F32)
      invalid(std::string(node.name()) + ": input " + std::to_string(i) + " has to be F32");
  if (node.in(Step).dtype != GALLEY_I64 || node.in(Apply).dtype != GALLEY_I32)
    invalid(std::string(node.name()) + ": the step has to be I64, and apply I32");
  for (const uint32_t i : {Gradient, Mean, Square, Largest})
    if (node.has(i) && count(node.in(i)) != count(node.in(Parameter)))
      invalid(std::string(node.name()) + ": the parameter is " + shape_text(node.in(Parameter)) + ", but input " + std::to_string(i) +
              " is " + shape_text(node.in(i)));
}

void reference_adamw_step(const Node& node) {
  if (!*node.read<int32_t>(Apply)) return;
  const double lr = *node.read<double>(Rate), factor = *node.read<double>(Factor), step = static_cast<double>(*node.read<int64_t>(Step));
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.999), eps = node.f("eps", 1e-8), decay = node.f("weight_decay", 0);
  const double rate = lr / (1 - std::pow(beta1, step)), root = std::sqrt(1 - std::pow(beta2, step));
  const double* gradient = node.read<double>(Gradient);
  double *p = node.update<double>(Parameter), *m = node.update<double>(Mean), *v = node.update<double>(Square);
  double* largest = node.has(Largest) ? node.update<double>(Largest) : nullptr;
  for (int64_t i = 0; i < count(node.in(Parameter)); ++i) {
    const double g = factor * gradient[i];
    m[i] += (1 - beta1) * (g - m[i]);
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    if (largest) largest[i] = std::max(largest[i], v[i]);
    p[i] -= lr * decay * p[i];
    p[i] -= rate * m[i] / (std::sqrt(largest ? largest[i] : v[i]) / root + eps);
  }
}

Op& adamw_step() {
  static Op op("adamw_step", "one step of AdamW");
  constexpr uint32_t scalar = GALLEY_OPERAND_NO_GRADIENT, in_place = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT, F = GALLEY_F32;
  op.input("parameter", GALLEY_ROLE_ROWS, in_place)
      .input("gradient", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT | GALLEY_OPERAND_ANY_DTYPE)
      .input("exp_avg", GALLEY_ROLE_ROWS, in_place)
      .input("exp_avg_sq", GALLEY_ROLE_ROWS, in_place)
      .input("lr", GALLEY_ROLE_WHOLE, scalar)
      .input("applied_step", GALLEY_ROLE_WHOLE, scalar)
      .input("gradient_factor", GALLEY_ROLE_WHOLE, scalar)
      .input("apply", GALLEY_ROLE_WHOLE, scalar)
      .input("max_exp_avg_sq", GALLEY_ROLE_ROWS, in_place | GALLEY_OPERAND_OPTIONAL)
      .grain(GALLEY_GRAIN_ELEMENT)
      .number("beta1", 0.9, "decay of the mean of gradients")
      .number("beta2", 0.999, "decay of the mean of their squares")
      .number("eps", 1e-8, "added to the root of the mean of squares")
      .number("weight_decay", 0, "times lr: by which the parameter shrinks")
      .infer<infer_adamw_step>()
      .reference<reference_adamw_step>();
  const auto inputs = [](std::vector<int64_t> shape, double step, double apply, bool amsgrad, uint32_t gradient = GALLEY_F32) {
    return std::vector<CaseInput>{{F, shape},
                                  {gradient, shape},
                                  {F, shape},
                                  {F, shape, 0, 1},
                                  {F, {1}, 0.001, 0.1},
                                  {GALLEY_I64, {1}, step, step},
                                  {F, {1}, 0.5, 1},
                                  {GALLEY_I32, {1}, apply, apply},
                                  {amsgrad ? F : 0, shape, 0, 1}};
  };
  const auto attrs = [](double decay) { return Attrs().f("beta1", 0.9).f("beta2", 0.95).f("eps", 1e-8).f("weight_decay", decay); };
  op.test("first", inputs({7, 5}, 1, 1, false), attrs(0.1))
      .test("later", inputs({37, 671}, 100, 1, false), attrs(0.1))
      .test("no decay", inputs({131, 67}, 2, 1, false), attrs(0))
      .test("amsgrad", inputs({37, 671}, 10, 1, true), attrs(0.1))
      .test("skipped", inputs({7, 5}, 10, 0, false), attrs(0.1))
      .test("bf16", inputs({37, 671}, 100, 1, false, GALLEY_BF16), attrs(0.1))
      .test("f16", inputs({37, 671}, 10, 1, true, GALLEY_F16), attrs(0.1));
  return op;
}

class AdamW {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit AdamW(const Options& options)
      : betas_(options.numbers("betas")),
        eps_(options.number("eps")),
        decay_(options.number("weight_decay")),
        decay_all_(options.string("decay_on") == "all"),
        amsgrad_(options.boolean("amsgrad")) {}

  /// Weakly: an optimizer that names its parameters goes first.
  void claim(const GraphReader&, const galley_subject& subject, Claim& out) const {
    if (subject.facet == GALLEY_FACET_UPDATE && subject.trainable) out.weak(0, "adamw");
  }

  void build(Graph& graph, Trained trained) const {
    const galley_tensor_info p = graph.info(trained.parameter);
    const std::string name = p.name;
    const bool decays = decay_all_ || !(p.flags & GALLEY_TENSOR_NO_DECAY);
    const galley_tensor mean = graph.state(name + ".exp_avg", p), square = graph.state(name + ".exp_avg_sq", p, GALLEY_TENSOR_NON_NEGATIVE);
    const galley_tensor largest = amsgrad_ ? graph.state(name + ".max_exp_avg_sq", p, GALLEY_TENSOR_NON_NEGATIVE) : 0;
    graph.node(
        "adamw_step", nullptr,
        {trained.parameter, trained.gradient, mean, square, graph.rate("lr", trained.parameter), graph.scalar(GALLEY_SCALAR_APPLIED_STEP),
         graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), graph.scalar(GALLEY_SCALAR_APPLY), largest},
        Attrs().f("beta1", betas_[0]).f("beta2", betas_[1]).f("eps", eps_).f("weight_decay", decays ? decay_ : 0.0), {});
  }

 private:
  std::vector<double> betas_;
  double eps_, decay_;
  bool decay_all_, amsgrad_;
};

const bool registered = add(adamw_step()) && add(strategy<AdamW>("adamw"));

}  // namespace

GALLEY_PLUGIN("adamw", "1.0.0");
