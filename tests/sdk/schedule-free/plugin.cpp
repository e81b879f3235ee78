// Schedule-free AdamW (Defazio et al., "The Road Less Scheduled", 2024, arXiv:2405.15682). For tests, built outside the tree: an optimizer
// whose parameters are not what is evaluated. The parameter is y, where the gradient is taken; z is a state, and the average x is made of
// both when the model is evaluated:
//   c = rate² / Σ rate²,   u = ĝ / (√v̂ + ε) + λ y
//   y = y + c (z − y) + rate (β₁ (1 − c) − 1) u,   z = z − rate u,   x = y + (1 − 1/β₁) (z − y)
#include <galley/cpp/strategy.hpp>

#include <cmath>

namespace {

using namespace galley::sdk;

constexpr uint64_t in_place = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT, fixed = GALLEY_OPERAND_NO_GRADIENT;

// ---- The weight of a step in the average: one number for all parameters ----------------------------------------------------------

enum Weight : uint32_t { Sum, Largest, WeightRate, WeightApply };

void infer_weight(const Node&, Shapes& out) { out.set(0, GALLEY_F32, {1}); }

template <class Real>
void weight(const Node& node) {
  Real &sum = *node.update<Real>(Sum), &largest = *node.update<Real>(Largest), &c = *node.write<Real>(0);
  c = 0;
  if (!*node.read<int32_t>(WeightApply)) return;
  largest = std::max(largest, *node.read<Real>(WeightRate));
  sum += largest * largest;
  c = sum > 0 ? largest * largest / sum : 0;
}
void run_weight(const Node& node, void*) { weight<float>(node); }
void reference_weight(const Node& node) { weight<double>(node); }

Op weight_op("schedule_free_weight", "c = rate^2 / (sum of squares of rates so far), at the largest rate so far");
const bool weight_added = add(weight_op.input("sum", GALLEY_ROLE_WHOLE, in_place)
                                  .input("largest", GALLEY_ROLE_WHOLE, in_place)
                                  .input("lr", GALLEY_ROLE_WHOLE, fixed)
                                  .input("apply", GALLEY_ROLE_WHOLE, fixed)
                                  .output("c", GALLEY_ROLE_WHOLE)
                                  .infer<infer_weight>()
                                  .reference<reference_weight>()) &&
                          add(kernel<run_weight>("schedule_free_weight.cpu", "schedule_free_weight"));

// ---- The step of a parameter -----------------------------------------------------------------------------------------------------

enum Step : uint32_t { Y, Gradient, Z, Square, C, Rate, AppliedStep, Factor, Apply };

void infer_step(const Node& node, Shapes&) {
  for (const uint32_t i : {Gradient, Z, Square})
    if (count(node.in(i)) != count(node.in(Y))) invalid(std::string(node.name()) + ": operands of different sizes");
}

template <class Real>
void step(const Node& node) {
  if (!*node.read<int32_t>(Apply)) return;
  const double rate = static_cast<double>(*node.read<Real>(Rate)), c = static_cast<double>(*node.read<Real>(C));
  const double factor = static_cast<double>(*node.read<Real>(Factor)), eps = node.f("eps", 1e-8), decay = node.f("weight_decay", 0);
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.999);
  const double corrected = 1 - std::pow(beta2, static_cast<double>(*node.read<int64_t>(AppliedStep)));
  Real *y = node.update<Real>(Y), *z = node.update<Real>(Z), *v = node.update<Real>(Square);
  const Real* gradient = node.read<Real>(Gradient);
  for (int64_t i = 0; i < count(node.in(Y)); ++i) {
    const double g = factor * static_cast<double>(gradient[i]);
    const double square = beta2 * static_cast<double>(v[i]) + (1 - beta2) * g * g;
    const double at = static_cast<double>(y[i]), u = g / (std::sqrt(square / corrected) + eps) + decay * at;
    y[i] = static_cast<Real>(at + c * (static_cast<double>(z[i]) - at) + rate * (beta1 * (1 - c) - 1) * u);
    z[i] = static_cast<Real>(static_cast<double>(z[i]) - rate * u);
    v[i] = static_cast<Real>(square);
  }
}
void run_step(const Node& node, void*) { step<float>(node); }
void reference_step(const Node& node) { step<double>(node); }
bool supports_step(const Node& node) { return node.in(Y).dtype == GALLEY_F32 && node.in(Gradient).dtype == GALLEY_F32; }

Op step_op("schedule_free_step", "one step of schedule-free AdamW");
const bool step_added = add(step_op.input("y", GALLEY_ROLE_ROWS, in_place)
                                .input("gradient", GALLEY_ROLE_ROWS, fixed)
                                .input("z", GALLEY_ROLE_ROWS, in_place)
                                .input("exp_avg_sq", GALLEY_ROLE_ROWS, in_place)
                                .input("c", GALLEY_ROLE_WHOLE, fixed)
                                .input("lr", GALLEY_ROLE_WHOLE, fixed)
                                .input("applied_step", GALLEY_ROLE_WHOLE, fixed)
                                .input("gradient_factor", GALLEY_ROLE_WHOLE, fixed)
                                .input("apply", GALLEY_ROLE_WHOLE, fixed)
                                .grain(GALLEY_GRAIN_ELEMENT)
                                .number("beta1", 0.9, "decay of the mean of gradients")
                                .number("beta2", 0.999, "decay of the mean of their squares")
                                .number("eps", 1e-8, "added to the root of the mean of squares")
                                .number("weight_decay", 0, "times lr: by which the parameter shrinks")
                                .infer<infer_step>()
                                .reference<reference_step>()) &&
                        add(kernel<run_step, supports_step>("schedule_free_step.cpu", "schedule_free_step"));

// ---- What is evaluated -------------------------------------------------------------------------------------------------------------

void infer_value(const Node& node, Shapes& out) { out.like(0, node.in(0)); }

template <class Real>
void value(const Node& node) {
  const double beta1 = node.f("beta1", 0.9);
  const Real *y = node.read<Real>(0), *z = node.read<Real>(1);
  Real* x = node.write<Real>(0);
  for (int64_t i = 0; i < count(node.in(0)); ++i)
    x[i] = static_cast<Real>(static_cast<double>(y[i]) + (1 - 1 / beta1) * (static_cast<double>(z[i]) - static_cast<double>(y[i])));
}
void run_value(const Node& node, void*) { value<float>(node); }
void reference_value(const Node& node) { value<double>(node); }

Op value_op("schedule_free_value", "x = y + (1 - 1 / beta1) (z - y)");
const bool value_added = add(value_op.input("y", GALLEY_ROLE_ROWS, fixed)
                                 .input("z", GALLEY_ROLE_ROWS, fixed)
                                 .output("x", GALLEY_ROLE_ROWS)
                                 .number("beta1", 0.9, "how far the gradient is taken towards the average")
                                 .infer<infer_value>()
                                 .reference<reference_value>()) &&
                         add(kernel<run_value>("schedule_free_value.cpu", "schedule_free_value"));

// ---- The strategy ------------------------------------------------------------------------------------------------------------------

class ScheduleFree {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;
  explicit ScheduleFree(const Options& options)
      : betas_(options.numbers("betas")), eps_(options.number("eps")), decay_(options.number("weight_decay")) {}

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_UPDATE)) return;
    for (const Claim& parameter : claims)
      if (parameter.trainable) parameter.weak(0, "schedule-free");
  }

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (call.purpose == GALLEY_PURPOSE_EVAL) {
      for (const Trained& t : call.trained)
        graph.eval_as(t.parameter,
                      graph.node("schedule_free_value", nullptr, {t.parameter, z(graph, t.parameter)}, Attrs().f("beta1", betas_[0]))[0]);
    }
    if (!call.trains()) return;
    const galley_tensor apply = graph.scalar(GALLEY_SCALAR_APPLY),
                        c = graph.node("schedule_free_weight", nullptr,
                                       {graph.number("schedule_free.sum", GALLEY_F32, 0),
                                        graph.number("schedule_free.largest", GALLEY_F32, 0), graph.option("lr"), apply})[0];
    for (const Trained& t : call.trained) {
      const galley_tensor_info p = graph.info(t.parameter);
      graph.about(t.parameter);
      const galley_tensor square = graph.state(std::string(p.name) + ".exp_avg_sq", p, GALLEY_TENSOR_NON_NEGATIVE);
      graph.node("schedule_free_step", nullptr,
                 {t.parameter, t.gradient, z(graph, t.parameter), square, c, graph.rate("lr", t.parameter),
                  graph.scalar(GALLEY_SCALAR_APPLIED_STEP), graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), apply},
                 Attrs()
                     .f("beta1", betas_[0])
                     .f("beta2", betas_[1])
                     .f("eps", eps_)
                     .f("weight_decay", p.flags & GALLEY_TENSOR_NO_DECAY ? 0 : decay_),
                 {});
    }
  }

 private:
  /// z begins where the parameter does.
  static galley_tensor z(Graph& graph, galley_tensor parameter) {
    return graph.copy_of(std::string(graph.info(parameter).name) + ".z", parameter);
  }

  std::vector<double> betas_;
  double eps_, decay_;
};
const bool strategy_added = add(strategy<ScheduleFree>("schedule-free"));

}  // namespace

GALLEY_PLUGIN("schedule-free", "1.0.0");
