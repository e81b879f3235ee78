// Prodigy (Mishchenko, Defazio, "Prodigy: An Expeditiously Adaptive Parameter-Free Learner", 2023, arXiv:2306.06101, Adam version). For
// tests, built outside the tree: inside its stage, a number is made of all parameters, and each of them then takes its step by it.
//   m = β₁ m + d (1 − β₁) g,   v = β₂ v + d² (1 − β₂) g²,   s = √β₂ s + d²/d₀ γ g
//   r = √β₂ r + d²/d₀ γ Σ ⟨g, p₀ − p⟩,   d' = max(d, r / Σ |s|)
//   p = p − γ d (m / (√v + d' ε) + λ p)
#include <galley/cpp/strategy.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace galley::sdk;

constexpr uint64_t in_place = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT, fixed = GALLEY_OPERAND_NO_GRADIENT;

// ---- Of each parameter: its means, and its part of two sums ----------------------------------------------------------------------

enum Sums : uint32_t { Parameter, Gradient, First, Mean, Square, Direction, Distance, Rate, Factor, Apply };

void infer_sums(const Node& node, Shapes& out) {
  for (const uint32_t i : {Gradient, First, Mean, Square, Direction})
    if (count(node.in(i)) != count(node.in(Parameter))) invalid(std::string(node.name()) + ": operands of different sizes");
  out.set(0, GALLEY_F64, {2});
}

template <class Real>
void sums(const Node& node) {
  double* out = node.write<double>(0);
  out[0] = out[1] = 0;
  if (!*node.read<int32_t>(Apply)) return;
  const double d = static_cast<double>(*node.read<Real>(Distance)), factor = static_cast<double>(*node.read<Real>(Factor));
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.999), d0 = node.f("d0", 1e-6);
  const double scale = d / d0 * d * static_cast<double>(*node.read<Real>(Rate));
  const Real *p = node.read<Real>(Parameter), *gradient = node.read<Real>(Gradient), *first = node.read<Real>(First);
  Real *m = node.update<Real>(Mean), *v = node.update<Real>(Square), *s = node.update<Real>(Direction);
  for (int64_t i = 0; i < count(node.in(Parameter)); ++i) {
    const double g = factor * static_cast<double>(gradient[i]);
    m[i] = static_cast<Real>(beta1 * static_cast<double>(m[i]) + d * (1 - beta1) * g);
    v[i] = static_cast<Real>(beta2 * static_cast<double>(v[i]) + d * d * (1 - beta2) * g * g);
    s[i] = static_cast<Real>(std::sqrt(beta2) * static_cast<double>(s[i]) + scale * g);
    out[0] += scale * g * (static_cast<double>(first[i]) - static_cast<double>(p[i]));
    out[1] += std::abs(static_cast<double>(s[i]));
  }
}
void run_sums(const Node& node, void*) { sums<float>(node); }
void reference_sums(const Node& node) { sums<double>(node); }
bool supports(const Node& node) { return node.in(Parameter).dtype == GALLEY_F32 && node.in(Gradient).dtype == GALLEY_F32; }

Op sums_op("prodigy_sums", "means of gradients and squares, and what a parameter adds to both sums of the distance");
const bool sums_added = add(sums_op.input("parameter", GALLEY_ROLE_WHOLE, fixed)
                                .input("gradient", GALLEY_ROLE_WHOLE, fixed)
                                .input("first", GALLEY_ROLE_WHOLE, fixed)
                                .input("exp_avg", GALLEY_ROLE_WHOLE, in_place)
                                .input("exp_avg_sq", GALLEY_ROLE_WHOLE, in_place)
                                .input("direction", GALLEY_ROLE_WHOLE, in_place)
                                .input("distance", GALLEY_ROLE_WHOLE, fixed)
                                .input("lr", GALLEY_ROLE_WHOLE, fixed)
                                .input("gradient_factor", GALLEY_ROLE_WHOLE, fixed)
                                .input("apply", GALLEY_ROLE_WHOLE, fixed)
                                .output("sums", GALLEY_ROLE_WHOLE)
                                .number("beta1", 0.9, "")
                                .number("beta2", 0.999, "")
                                .number("d0", 1e-6, "")
                                .infer<infer_sums>()
                                .reference<reference_sums>()) &&
                        add(kernel<run_sums, supports>("prodigy_sums.cpu", "prodigy_sums"));

// ---- The distance, of all parameters -----------------------------------------------------------------------------------------------

enum Of : uint32_t { State, OfApply, Parts };

void infer_distance(const Node& node, Shapes& out) {
  for (uint32_t i = Parts; i < node.view()->n_inputs; ++i)
    if (count(node.in(i)) != 2) invalid(std::string(node.name()) + ": a parameter's sums are two numbers");
  out.set(0, GALLEY_F32, {1});
}

/// The state: d, r.
template <class Real>
void distance(const Node& node) {
  Real *state = node.update<Real>(State), *before = node.write<Real>(0);
  *before = state[0];
  if (!*node.read<int32_t>(OfApply)) return;
  double numerator = std::sqrt(node.f("beta2", 0.999)) * static_cast<double>(state[1]), denominator = 0;
  for (uint32_t i = Parts; i < node.view()->n_inputs; ++i) {
    numerator += node.read<double>(i)[0];
    denominator += node.read<double>(i)[1];
  }
  state[1] = static_cast<Real>(numerator);
  if (denominator > 0) state[0] = static_cast<Real>(std::max(static_cast<double>(state[0]), numerator / denominator));
}
void run_distance(const Node& node, void*) { distance<float>(node); }
void reference_distance(const Node& node) { distance<double>(node); }

Op distance_op("prodigy_distance", "the distance of all parameters' sums; answers the one before");
const bool distance_added = add(distance_op.input("state", GALLEY_ROLE_WHOLE, in_place)
                                    .input("apply", GALLEY_ROLE_WHOLE, fixed)
                                    .input("sums", GALLEY_ROLE_WHOLE, fixed | GALLEY_OPERAND_VARIADIC)
                                    .output("before", GALLEY_ROLE_WHOLE)
                                    .number("beta2", 0.999, "")
                                    .infer<infer_distance>()
                                    .reference<reference_distance>()) &&
                            add(kernel<run_distance>("prodigy_distance.cpu", "prodigy_distance"));

// ---- The step ------------------------------------------------------------------------------------------------------------------------

enum Step : uint32_t { P, M, V, Before, Now, StepRate, StepApply };

void infer_step(const Node& node, Shapes&) {
  if (count(node.in(M)) != count(node.in(P)) || count(node.in(V)) != count(node.in(P)))
    invalid(std::string(node.name()) + ": operands of different sizes");
}

template <class Real>
void step(const Node& node) {
  if (!*node.read<int32_t>(StepApply)) return;
  const double before = static_cast<double>(*node.read<Real>(Before)), now = static_cast<double>(node.read<Real>(Now)[0]);
  const double rate = before * static_cast<double>(*node.read<Real>(StepRate)), eps = now * node.f("eps", 1e-8);
  const double decay = node.f("weight_decay", 0);
  const Real *m = node.read<Real>(M), *v = node.read<Real>(V);
  Real* p = node.update<Real>(P);
  for (int64_t i = 0; i < count(node.in(P)); ++i) {
    const double root = std::sqrt(static_cast<double>(v[i])) + eps, at = static_cast<double>(p[i]) * (1 - rate * decay);
    p[i] = static_cast<Real>(root > 0 ? at - rate * static_cast<double>(m[i]) / root : at);
  }
}
void run_step(const Node& node, void*) { step<float>(node); }
void reference_step(const Node& node) { step<double>(node); }

Op step_op("prodigy_step", "p = p - lr d (m / (sqrt(v) + d' eps) + weight_decay p)");
const bool step_added = add(step_op.input("parameter", GALLEY_ROLE_ROWS, in_place)
                                .input("exp_avg", GALLEY_ROLE_ROWS, fixed)
                                .input("exp_avg_sq", GALLEY_ROLE_ROWS, fixed)
                                .input("before", GALLEY_ROLE_WHOLE, fixed)
                                .input("distance", GALLEY_ROLE_WHOLE, fixed)
                                .input("lr", GALLEY_ROLE_WHOLE, fixed)
                                .input("apply", GALLEY_ROLE_WHOLE, fixed)
                                .number("beta2", 0.999, "")
                                .number("eps", 1e-8, "")
                                .number("weight_decay", 0, "")
                                .infer<infer_step>()
                                .reference<reference_step>()) &&
                        add(kernel<run_step>("prodigy_step.cpu", "prodigy_step"));

// ---- The strategy ----------------------------------------------------------------------------------------------------------------------

class Prodigy {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;
  explicit Prodigy(const Options& options)
      : betas_(options.numbers("betas")), eps_(options.number("eps")), decay_(options.number("weight_decay")), d0_(options.number("d0")) {}

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_UPDATE)) return;
    for (const Claim& parameter : claims)
      if (parameter.trainable) parameter.weak(0, "prodigy");
  }

  void build(UpdateGraph& graph, const UpdateCall& call) const {
    if (!call.trains()) return;
    const galley_tensor apply = graph.scalar(GALLEY_SCALAR_APPLY), rate = graph.option("lr"),
                        factor = graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR);
    const galley_tensor state = graph.state("prodigy.state", GALLEY_F32, {2}, "prodigy_begin", {}, Attrs().f("value", d0_));
    struct Of {
      galley_tensor parameter, mean, square;
    };
    std::vector<Of> all;
    std::vector<galley_tensor> parts = {state, apply};
    for (const Trained& t : call.trained) {
      const galley_tensor_info p = graph.info(t.parameter);
      const std::string name = p.name;
      graph.about(t.parameter);
      const Of of = {t.parameter, graph.state(name + ".exp_avg", p), graph.state(name + ".exp_avg_sq", p, GALLEY_TENSOR_NON_NEGATIVE)};
      const galley_tensor first = graph.copy_of(name + ".first", t.parameter);
      parts.push_back(
          graph.node("prodigy_sums", nullptr,
                     {t.parameter, t.gradient, first, of.mean, of.square, graph.state(name + ".direction", p), state, rate, factor, apply},
                     Attrs().f("beta1", betas_[0]).f("beta2", betas_[1]).f("d0", d0_))[0]);
      all.push_back(of);
    }
    const galley_tensor before = graph.node("prodigy_distance", nullptr, parts, Attrs().f("beta2", betas_[1]))[0];
    graph.report(before, "distance");
    for (const Of& of : all)
      graph.node("prodigy_step", nullptr, {of.parameter, of.mean, of.square, before, state, graph.rate("lr", of.parameter), apply},
                 Attrs().f("eps", eps_).f("weight_decay", graph.info(of.parameter).flags & GALLEY_TENSOR_NO_DECAY ? 0 : decay_), {});
  }

 private:
  std::vector<double> betas_;
  double eps_, decay_, d0_;
};

// The state begins as (d₀, 0).
void infer_begin(const Node&, Shapes& out) { out.set(0, GALLEY_F32, {2}); }
template <class Real>
void begin(const Node& node) {
  node.write<Real>(0)[0] = static_cast<Real>(node.f("value", 1e-6));
  node.write<Real>(0)[1] = 0;
}
void run_begin(const Node& node, void*) { begin<float>(node); }
void reference_begin(const Node& node) { begin<double>(node); }
Op begin_op("prodigy_begin", "(value, 0)");
const bool begin_added = add(begin_op.output("state", GALLEY_ROLE_WHOLE)
                                 .number("value", 1e-6, "of the first distance")
                                 .infer<infer_begin>()
                                 .reference<reference_begin>()) &&
                         add(kernel<run_begin>("prodigy_begin.cpu", "prodigy_begin"));
const bool strategy_added = add(strategy<Prodigy>("prodigy"));

}  // namespace

GALLEY_PLUGIN("prodigy", "1.0.0");
