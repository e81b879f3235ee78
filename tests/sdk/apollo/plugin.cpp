// APOLLO (Zhu et al., "APOLLO: SGD-like memory, AdamW-level performance", 2024, arXiv:2412.05270). For tests, built outside the tree: an
// optimizer whose states have another shape than the parameter, and that uses another plugin's op for the rest. Of a matrix with gradient
// G (m, n), m ≤ n (else of its transpose), a random projection P (r, m) gives R = P G, on which Adam's means are kept:
//   R̃ = (m̂ / (√v̂ + ε)),   s_j = ‖R̃_j‖ / ‖R_j‖ for each column j,   W = (1 − rate λ) W − rate √(n_scale) · G diag(s)
// P is drawn anew every `every` steps. Vectors are stepped by adamw_step.
#include <galley/philox.h>
#include <galley/cpp/strategy.hpp>

#include <algorithm>
#include <cmath>

namespace {

using namespace galley::sdk;

constexpr uint64_t in_place = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT, fixed = GALLEY_OPERAND_NO_GRADIENT;

/// Rows and columns as the projection sees them: the shorter side is projected.
struct Sides {
  explicit Sides(const galley_operand& g)
      : tall(g.shape[0] > g.shape[1]), m(std::min(g.shape[0], g.shape[1])), n(std::max(g.shape[0], g.shape[1])) {}
  int64_t at(int64_t i, int64_t j) const { return tall ? j * m + i : i * n + j; }
  bool tall;
  int64_t m, n;
};

/// Element i of a matrix of N(0, 1 / rank), by the tensor's key and the period.
double draw(uint64_t key, int64_t period, int64_t i, int64_t rank) {
  const galley_philox_block b = galley_philox(key, static_cast<uint64_t>(i), static_cast<uint64_t>(period));
  const double u = (b.word[0] + 0.5) / 4294967296.0, v = (b.word[1] + 0.5) / 4294967296.0;
  return std::sqrt(-2 * std::log(u) / static_cast<double>(rank)) * std::cos(2 * 3.14159265358979323846 * v);
}

// ---- R = P G ---------------------------------------------------------------------------------------------------------------------

void infer_project(const Node& node, Shapes& out) {
  const galley_operand& g = node.in(0);
  if (g.rank != 2) invalid(std::string(node.name()) + ": gradient " + shape_text(g) + "; it has to be a matrix");
  out.set(0, GALLEY_F32, {node.i("rank", 0), Sides(g).n});
}

template <class Real>
void project(const Node& node) {
  const Sides s(node.in(0));
  const int64_t rank = node.i("rank", 0), period = (*node.read<int64_t>(1) - 1) / node.i("every", 200);
  const auto key = static_cast<uint64_t>(node.i("key", 0));
  const Real *g = node.read<Real>(0), factor = *node.read<Real>(2);
  Real* r = node.write<Real>(0);
  for (int64_t k = 0; k < rank; ++k)
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < s.m; ++i) sum += draw(key, period, k * s.m + i, rank) * static_cast<double>(g[s.at(i, j)]);
      r[k * s.n + j] = static_cast<Real>(static_cast<double>(factor) * sum);
    }
}
void run_project(const Node& node, void*) { project<float>(node); }
void reference_project(const Node& node) { project<double>(node); }

Op project_op("apollo_project", "R = P G · gradient_factor, P random");
const bool project_added = add(project_op.input("gradient", GALLEY_ROLE_WHOLE, fixed)
                                   .input("applied_step", GALLEY_ROLE_WHOLE, fixed)
                                   .input("gradient_factor", GALLEY_ROLE_WHOLE, fixed)
                                   .output("r", GALLEY_ROLE_WHOLE)
                                   .attr("rank", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of the projection")
                                   .attr("key", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of the random numbers")
                                   .integer("every", 200, "steps after which P is drawn anew")
                                   .infer<infer_project>()
                                   .reference<reference_project>()) &&
                           add(kernel<run_project>("apollo_project.cpu", "apollo_project"));

// ---- The step --------------------------------------------------------------------------------------------------------------------

enum Step : uint32_t { Parameter, Gradient, Projected, Mean, Square, Rate, AppliedStep, Factor, Apply };

void infer_step(const Node& node, Shapes&) {
  const galley_operand &r = node.in(Projected), &g = node.in(Gradient);
  if (count(g) != count(node.in(Parameter)) || count(r) != count(node.in(Mean)) || count(r) != count(node.in(Square)) ||
      columns(r) != Sides(g).n)
    invalid(std::string(node.name()) + ": operands of different sizes");
}

template <class Real>
void step(const Node& node) {
  if (!*node.read<int32_t>(Apply)) return;
  const Sides s(node.in(Gradient));
  const int64_t rank = node.in(Projected).shape[0];
  const double beta1 = node.f("beta1", 0.9), beta2 = node.f("beta2", 0.999), eps = node.f("eps", 1e-8), scale = node.f("scale", 1);
  const double rate = static_cast<double>(*node.read<Real>(Rate)), factor = static_cast<double>(*node.read<Real>(Factor));
  const auto t = static_cast<double>(*node.read<int64_t>(AppliedStep));
  const double of_mean = 1 - std::pow(beta1, t), of_square = 1 - std::pow(beta2, t), keep = 1 - rate * node.f("weight_decay", 0);
  Real *p = node.update<Real>(Parameter), *mean = node.update<Real>(Mean), *square = node.update<Real>(Square);
  const Real *g = node.read<Real>(Gradient), *r = node.read<Real>(Projected);
  for (int64_t j = 0; j < s.n; ++j) {
    double adapted = 0, plain = 0;
    for (int64_t k = 0; k < rank; ++k) {
      const int64_t at = k * s.n + j;
      const double x = static_cast<double>(r[at]), m = beta1 * static_cast<double>(mean[at]) + (1 - beta1) * x;
      const double v = beta2 * static_cast<double>(square[at]) + (1 - beta2) * x * x, y = m / of_mean / (std::sqrt(v / of_square) + eps);
      mean[at] = static_cast<Real>(m);
      square[at] = static_cast<Real>(v);
      adapted += y * y;
      plain += x * x;
    }
    const double by = plain > 0 ? rate * scale * factor * std::sqrt(adapted / plain) : 0;
    for (int64_t i = 0; i < s.m; ++i) {
      const int64_t at = s.at(i, j);
      p[at] = static_cast<Real>(keep * static_cast<double>(p[at]) - by * static_cast<double>(g[at]));
    }
  }
}
void run_step(const Node& node, void*) { step<float>(node); }
void reference_step(const Node& node) { step<double>(node); }

Op step_op("apollo_step", "W = (1 - lr decay) W - lr scale G diag(s)");
const bool step_added = add(step_op.input("parameter", GALLEY_ROLE_WHOLE, in_place)
                                .input("gradient", GALLEY_ROLE_WHOLE, fixed)
                                .input("r", GALLEY_ROLE_WHOLE, fixed)
                                .input("exp_avg", GALLEY_ROLE_WHOLE, in_place)
                                .input("exp_avg_sq", GALLEY_ROLE_WHOLE, in_place)
                                .input("lr", GALLEY_ROLE_WHOLE, fixed)
                                .input("applied_step", GALLEY_ROLE_WHOLE, fixed)
                                .input("gradient_factor", GALLEY_ROLE_WHOLE, fixed)
                                .input("apply", GALLEY_ROLE_WHOLE, fixed)
                                .number("beta1", 0.9, "decay of the mean of R")
                                .number("beta2", 0.999, "decay of the mean of squares of R")
                                .number("eps", 1e-8, "added to the root of the mean of squares")
                                .number("scale", 1, "of the step")
                                .number("weight_decay", 0, "times lr: by which the parameter shrinks")
                                .grain(GALLEY_GRAIN_TENSOR)
                                .infer<infer_step>()
                                .reference<reference_step>()) &&
                        add(kernel<run_step>("apollo_step.cpu", "apollo_step"));

// ---- The strategy ----------------------------------------------------------------------------------------------------------------

class Apollo {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;
  explicit Apollo(const Options& options)
      : rank_(options.integer("rank")),
        every_(options.integer("every")),
        scale_(options.number("scale")),
        decay_(options.number("weight_decay")) {}

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_UPDATE)) return;
    for (const Claim& parameter : claims)
      if (parameter.trainable) parameter.weak(0, "apollo");
  }

  void build(UpdateGraph& graph, Trained t) const {
    const galley_tensor_info p = graph.info(t.parameter);
    const std::string name = p.name;
    const double decay = p.flags & GALLEY_TENSOR_NO_DECAY ? 0 : decay_;
    const galley_tensor rate = graph.rate("lr", t.parameter), applied = graph.scalar(GALLEY_SCALAR_APPLIED_STEP),
                        factor = graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), apply = graph.scalar(GALLEY_SCALAR_APPLY);
    if (p.rank != 2 || std::min(p.shape[0], p.shape[1]) <= rank_) {
      graph.node("adamw_step", nullptr,
                 {t.parameter, t.gradient, rate, applied, factor, apply, graph.state(name + ".exp_avg", p),
                  graph.state(name + ".exp_avg_sq", p, GALLEY_TENSOR_NON_NEGATIVE)},
                 Attrs().f("weight_decay", decay), {});
      return;
    }
    const std::vector<int64_t> shape = {rank_, std::max(p.shape[0], p.shape[1])};
    const galley_tensor r =
        graph.node("apollo_project", nullptr, {t.gradient, applied, factor},
                   Attrs().i("rank", rank_).i("every", every_).i("key", static_cast<int64_t>(galley_name_hash(name.c_str()))))[0];
    graph.node("apollo_step", nullptr,
               {t.parameter, t.gradient, r, graph.state(name + ".exp_avg", GALLEY_F32, shape, "fill"),
                graph.state(name + ".exp_avg_sq", GALLEY_F32, shape, "fill"), rate, applied, factor, apply},
               Attrs().f("scale", scale_).f("weight_decay", decay), {});
  }

 private:
  int64_t rank_, every_;
  double scale_, decay_;
};
const bool strategy_added = add(strategy<Apollo>("apollo"));

}  // namespace

GALLEY_PLUGIN("apollo", "1.0.0");
