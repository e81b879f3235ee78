// Adafactor (Shazeer, Stern, "Adafactor: Adaptive learning rates with sublinear memory cost", ICML 2018, arXiv:1804.04235), as
// transformers.Adafactor defines it. t is the applied step, RMS the root of the mean of squares, g = factor · gradient:
//   β₂ = 1 − t^decay_rate
//   matrices:  r = β₂ r + (1 − β₂) mean over columns of (g² + ε₁),  c = β₂ c + (1 − β₂) mean over rows of (g² + ε₁)
//              u = g / √(r cᵀ / mean(r))
//   others:    v = β₂ v + (1 − β₂) (g² + ε₁),  u = g / √v
//   ρ = lr;  relative_step: min(lr, 1 / √t), with warmup_init min(lr, 1e-6 t, 1 / √t)
//   α = ρ;  scale_parameter: ρ max(ε₂, RMS(p))
//   d = α u / max(1, RMS(u) / clip_threshold)
//   with beta1:  m = β₁ m + (1 − β₁) d,  d = m
//   p = p − α weight_decay p − d
// adafactor_moments updates r and c, or v, and makes two numbers: α √mean(r) / max(1, …), by which g / √(r cᵀ) is multiplied, and
// 1 − α weight_decay. adafactor_step does the rest. No tensor of the parameter's size is made: u is computed twice.
#include <cmath>
#include <optional>

#include "arithmetic.hpp"
#include "galley/cpp/optimizer.hpp"

namespace {

using namespace galley::sdk;
using galley::adafactor::Constants;
namespace af = galley::adafactor;

// ---- Ops --------------------------------------------------------------------------------------------------------------------------------

void check_dtypes(const Node& node) {
  for (uint32_t i = 0; i < node.view()->n_inputs; ++i) {
    if (!node.has(i)) continue;
    const uint32_t dtype = node.in(i).dtype;
    const bool step = galley_same_text(node.view()->op, "adafactor_moments") && i == kStepNumber;
    const bool apply = i == (galley_same_text(node.view()->op, "adafactor_moments") ? uint32_t{kStepApply} : uint32_t{af::kApply});
    const char* const wanted = step ? "I64" : apply ? "I32" : i == 1 ? "F32, BF16 or F16" : "F32";
    const bool good = step    ? dtype == GALLEY_I64
                      : apply ? dtype == GALLEY_I32
                              : dtype == GALLEY_F32 || (i == 1 && galley::sdk::detail::is_16_bit(dtype));
    if (!good) invalid(std::string(node.name()) + ": input " + std::to_string(i) + " has to be " + wanted);
  }
}

/// The second moment of a parameter: rows and columns of a matrix, or one of the parameter's shape.
void check_squares(const Node& node, uint32_t squares, uint32_t columns_of) {
  check_dtypes(node);
  const galley_operand& p = node.in(0);
  const std::string name = node.name();
  const bool factored = node.has(columns_of);
  if (factored && p.rank != 2) invalid(name + ": the second moment of " + shape_text(p) + " cannot be factored: it is no matrix");
  const int64_t wanted = factored ? rows(p) : count(p);
  if (count(node.in(squares)) != wanted || (factored && count(node.in(columns_of)) != columns(p)))
    invalid(name + ": the second moment does not belong to a parameter of " + shape_text(p));
  if (count(node.in(1)) != count(p)) invalid(name + ": the parameter is " + shape_text(p) + ", but the gradient " + shape_text(node.in(1)));
}

void infer_moments(const Node& node, Shapes& shapes) {
  check_squares(node, af::kRows, af::kColumns);
  shapes.set(0, GALLEY_F32, {2});
}
void infer_step(const Node& node, Shapes&) {
  check_squares(node, af::kSquares, af::kColumnSquares);
  if (count(node.in(af::kScale)) != 2) invalid(std::string(node.name()) + ": the scale has to be two numbers");
  if (node.has(af::kMean) && count(node.in(af::kMean)) != count(node.in(0)))
    invalid(std::string(node.name()) + ": the mean of updates is " + shape_text(node.in(af::kMean)) + ", and the parameter " +
            shape_text(node.in(0)));
}

/// 1 / √ of the second moment of element i.
double inverse_root(const Node& node, uint32_t squares, uint32_t columns_of, int64_t i) {
  if (!node.has(columns_of)) return 1 / std::sqrt(node.read<double>(squares)[i]);
  const int64_t n = columns(node.in(0));
  return 1 / (std::sqrt(node.read<double>(squares)[i / n]) * std::sqrt(node.read<double>(columns_of)[i % n]));
}

void reference_moments(const Node& node) {
  double* const out = node.write<double>(0);
  out[0] = 0, out[1] = 1;
  if (!*node.read<int32_t>(kStepApply)) return;
  const Constants c(node);
  const int64_t t = *node.read<int64_t>(kStepNumber), n = count(node.in(0)), width = columns(node.in(0));
  const bool factored = node.has(af::kColumns);
  const double share = c.share(t), factor = *node.read<double>(kStepFactor);
  const double *const p = node.read<double>(kStepParameter), *const gradient = node.read<double>(kStepGradient);
  double* const squares = node.update<double>(af::kRows);
  double* const column_squares = factored ? node.update<double>(af::kColumns) : nullptr;
  const int64_t of_row = factored ? width : 1;
  for (int64_t k = 0; k < n / of_row; ++k) squares[k] *= 1 - share;
  for (int64_t k = 0; factored && k < width; ++k) column_squares[k] *= 1 - share;
  double size = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double square = factor * gradient[i] * factor * gradient[i] + c.eps_square;
    squares[i / of_row] += share * square / static_cast<double>(of_row);
    if (factored) column_squares[i % width] += share * square / static_cast<double>(n / width);
    size += p[i] * p[i];
  }
  double row_mean = 1, update = 0;
  if (factored) {
    row_mean = 0;
    for (int64_t r = 0; r < n / width; ++r) row_mean += squares[r] / static_cast<double>(n / width);
  }
  for (int64_t i = 0; i < n; ++i) {
    const double u = factor * gradient[i] * inverse_root(node, af::kRows, af::kColumns, i);
    update += u * u;
  }
  const double rms = std::max(1.0, std::sqrt(row_mean * update / static_cast<double>(n)) / c.threshold);
  double alpha = c.rho(*node.read<double>(af::kLr), *node.read<double>(kStepRate), t);
  if (c.scaled) alpha *= std::max(c.eps_scale, std::sqrt(size / static_cast<double>(n)));
  out[0] = alpha * std::sqrt(row_mean) / rms;
  out[1] = 1 - alpha * c.weight_decay;
}

void reference_step(const Node& node) {
  if (!*node.read<int32_t>(af::kApply)) return;
  const double beta1 = node.f("beta1", 0.9), factor = *node.read<double>(af::kFactor);
  const double *const scale = node.read<double>(af::kScale), *const gradient = node.read<double>(af::kGradient);
  double* const p = node.update<double>(af::kParameter);
  double* const mean = node.has(af::kMean) ? node.update<double>(af::kMean) : nullptr;
  for (int64_t i = 0; i < count(node.in(af::kParameter)); ++i) {
    double d = scale[0] * factor * gradient[i] * inverse_root(node, af::kSquares, af::kColumnSquares, i);
    if (mean) d = mean[i] = beta1 * mean[i] + (1 - beta1) * d;
    p[i] = p[i] * scale[1] - d;
  }
}

constexpr uint64_t kFixed = GALLEY_OPERAND_NO_GRADIENT, kInPlace = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT;

struct MomentsCase {
  std::vector<int64_t> shape;
  double step = 1;
  bool apply = true, factored = true;
  uint32_t gradient = GALLEY_F32;
};

void add_case(Op& op, const char* name, const MomentsCase& c, Attrs attrs) {
  const double apply = c.apply;
  const int64_t columns = c.shape.back();
  op.test(name,
          {{GALLEY_F32, c.shape},
           {c.gradient, c.shape},
           {GALLEY_F32, {1}, 0.01, 0.02},
           {GALLEY_I64, {1}, c.step, c.step},
           {GALLEY_F32, {1}, 0.5, 1},
           {GALLEY_I32, {1}, apply, apply},
           {GALLEY_F32, c.factored ? std::vector<int64_t>{c.shape[0]} : c.shape, 0.01, 1},
           {c.factored ? GALLEY_F32 : 0u, {columns}, 0.01, 1},
           {GALLEY_F32, {1}, 0.01, 0.02}},
          std::move(attrs));
}

Op& adafactor_moments() {
  static Op op("adafactor_moments", "updates the second moment of Adafactor and makes scale (2): of the update, and of the parameter");
  op.flags(GALLEY_OP_PRIVATE)
      .input("parameter", GALLEY_ROLE_WHOLE, kFixed)
      .input("gradient", GALLEY_ROLE_WHOLE, kFixed | GALLEY_OPERAND_ANY_DTYPE)
      .input("rate", GALLEY_ROLE_WHOLE, kFixed)
      .input("applied_step", GALLEY_ROLE_WHOLE, kFixed)
      .input("gradient_factor", GALLEY_ROLE_WHOLE, kFixed)
      .input("apply", GALLEY_ROLE_WHOLE, kFixed)
      .input("exp_avg_sq", GALLEY_ROLE_WHOLE, kInPlace)
      .input("exp_avg_sq_col", GALLEY_ROLE_WHOLE, kInPlace | GALLEY_OPERAND_OPTIONAL)
      .input("lr", GALLEY_ROLE_WHOLE, kFixed)
      .output("scale", GALLEY_ROLE_WHOLE)
      .grain(GALLEY_GRAIN_TENSOR);
  op.number("decay_rate", -0.8, "the share of new squares is the step to this power")
      .number("eps_square", 1e-30, "added to squares")
      .number("eps_scale", 1e-3, "least size of a parameter")
      .number("clip_threshold", 1, "most that the root of the mean of squares of an update may be")
      .number("weight_decay", 0, "times the size of the step: by which the parameter shrinks")
      .integer("relative_step", 1, "1: the rate is at most 1 / √step")
      .integer("scale_parameter", 1, "1: the rate is multiplied by the parameter's root of the mean of squares")
      .integer("warmup_init", 0, "1: a relative rate is at most 1e-6 times the step")
      .infer<infer_moments>()
      .reference<reference_moments>();
  add_case(op, "first", {.shape = {7, 5}}, Attrs().f("weight_decay", 0.1));
  add_case(op, "later", {.shape = {131, 671}, .step = 100},
           Attrs().f("weight_decay", 0.1).f("decay_rate", -0.6).f("eps_square", 1e-3).f("eps_scale", 0.1).f("clip_threshold", 0.5));
  add_case(op, "relative", {.shape = {67, 131}, .step = 40000}, {});
  add_case(op, "warmup", {.shape = {37, 67}, .step = 5}, Attrs().i("warmup_init", 1));
  add_case(op, "fixed", {.shape = {67, 1301}, .step = 5}, Attrs().i("relative_step", 0).i("scale_parameter", 0));
  add_case(op, "vector", {.shape = {9000}, .step = 5, .factored = false}, {});
  add_case(op, "whole", {.shape = {37, 67}, .step = 5, .factored = false}, {});
  add_case(op, "skipped", {.shape = {7, 5}, .step = 10, .apply = false}, {});
  add_case(op, "bf16", {.shape = {131, 67}, .step = 100, .gradient = GALLEY_BF16}, {});
  add_case(op, "f16", {.shape = {671}, .step = 10, .factored = false, .gradient = GALLEY_F16}, {});
  return op;
}

struct StepTest {
  std::vector<int64_t> shape;
  bool apply = true, factored = true, mean = true;
  uint32_t gradient = GALLEY_F32;
};

void add_case(Op& op, const char* name, const StepTest& c) {
  const double apply = c.apply;
  op.test(name,
          {{GALLEY_F32, c.shape},
           {c.gradient, c.shape},
           {GALLEY_F32, {2}, 0.01, 0.1},
           {GALLEY_F32, {1}, 0.5, 1},
           {GALLEY_I32, {1}, apply, apply},
           {GALLEY_F32, c.factored ? std::vector<int64_t>{c.shape[0]} : c.shape, 0.01, 1},
           {c.factored ? GALLEY_F32 : 0u, {c.shape.back()}, 0.01, 1},
           {c.mean ? GALLEY_F32 : 0u, c.shape}},
          Attrs().f("beta1", 0.8));
}

Op& adafactor_step() {
  static Op op("adafactor_step", "one step of Adafactor");
  op.flags(GALLEY_OP_PRIVATE)
      .input("parameter", GALLEY_ROLE_WHOLE, kInPlace)
      .input("gradient", GALLEY_ROLE_WHOLE, kFixed | GALLEY_OPERAND_ANY_DTYPE)
      .input("scale", GALLEY_ROLE_WHOLE, kFixed)
      .input("gradient_factor", GALLEY_ROLE_WHOLE, kFixed)
      .input("apply", GALLEY_ROLE_WHOLE, kFixed)
      .input("exp_avg_sq", GALLEY_ROLE_WHOLE, kFixed)
      .input("exp_avg_sq_col", GALLEY_ROLE_WHOLE, kFixed | GALLEY_OPERAND_OPTIONAL)
      .input("exp_avg", GALLEY_ROLE_WHOLE, kInPlace | GALLEY_OPERAND_OPTIONAL)
      .grain(GALLEY_GRAIN_TENSOR);
  op.number("beta1", 0.9, "decay of the mean of updates").infer<infer_step>().reference<reference_step>();
  add_case(op, "matrix", {.shape = {131, 671}, .mean = false});
  add_case(op, "wide", {.shape = {5, 1301}});
  add_case(op, "vector", {.shape = {9000}, .factored = false, .mean = false});
  add_case(op, "vector with a mean", {.shape = {67}, .factored = false});
  add_case(op, "skipped", {.shape = {7, 5}, .apply = false});
  add_case(op, "bf16", {.shape = {131, 67}, .gradient = GALLEY_BF16});
  add_case(op, "f16", {.shape = {67}, .factored = false, .gradient = GALLEY_F16});
  return op;
}

// ---- The strategy -----------------------------------------------------------------------------------------------------------------------

class Adafactor {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit Adafactor(const Options& options)
      : eps_(options.numbers("eps")),
        threshold_(options.number("clip_threshold")),
        decay_rate_(options.number("decay_rate")),
        relative_(options.boolean("relative_step")),
        scaled_(options.boolean("scale_parameter")),
        warmup_(options.boolean("warmup_init")),
        updated_(options, "adafactor") {
    if (options.given("beta1")) beta1_ = options.number("beta1");
    if (warmup_ && !relative_)
      invalid("'warmup_init' is a warm-up of the relative step", "set relative_step = true, or give 'lr' a schedule with a warm-up");
  }

  void claim(const GraphReader&, const Claims& claims) const { updated_.claim(claims); }

  void build(UpdateGraph& graph, Trained trained) const {
    const galley_tensor_info p = graph.info(trained.parameter);
    if (const double factor = updated_.lr_factor(p); factor != 1) graph.scale_rate(trained.parameter, factor);
    const std::string name = p.name;
    const galley_tensor factor = graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), apply = graph.scalar(GALLEY_SCALAR_APPLY);
    galley_tensor squares = 0, column_squares = 0;
    if (p.rank == 2) {
      squares = moment(graph, name + ".exp_avg_sq_row", p.shape[0]);
      column_squares = moment(graph, name + ".exp_avg_sq_col", p.shape[1]);
    } else {
      squares = graph.state(name + ".exp_avg_sq", p, GALLEY_TENSOR_NON_NEGATIVE);
    }
    const galley_tensor mean = beta1_ ? graph.state(name + ".exp_avg", p) : 0;
    const galley_tensor scale =
        graph.node("adafactor_moments", nullptr,
                   {trained.parameter, trained.gradient, graph.rate("lr", trained.parameter), graph.scalar(GALLEY_SCALAR_APPLIED_STEP),
                    factor, apply, squares, column_squares, graph.option("lr")},
                   Attrs()
                       .f("decay_rate", decay_rate_)
                       .f("eps_square", eps_[0])
                       .f("eps_scale", eps_[1])
                       .f("clip_threshold", threshold_)
                       .f("weight_decay", updated_.decay(p))
                       .i("relative_step", relative_)
                       .i("scale_parameter", scaled_)
                       .i("warmup_init", warmup_))[0];
    graph.node("adafactor_step", nullptr, {trained.parameter, trained.gradient, scale, factor, apply, squares, column_squares, mean},
               Attrs().f("beta1", beta1_.value_or(0)), {});
  }

 private:
  static galley_tensor moment(Graph& graph, const std::string& name, int64_t n) {
    galley_tensor_info shape = fresh<galley_tensor_info>();
    shape.rank = 1;
    shape.shape = &n;
    return graph.state(name, shape, GALLEY_TENSOR_NON_NEGATIVE);
  }

  std::vector<double> eps_;
  double threshold_, decay_rate_;
  bool relative_, scaled_, warmup_;
  Updated updated_;
  std::optional<double> beta1_;
};

const bool registered = add(adafactor_moments()) && add(adafactor_step()) && add(strategy<Adafactor>("adafactor"));

}  // namespace

GALLEY_PLUGIN("adafactor", "1.0.0");
