// Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024, kellerjordan.github.io/posts/muon), as
// torch.optim.Muon defines it. Of a matrix p (A, B), with g = factor · gradient:
//   m = m + (1 − momentum) (g − m),  d = g + momentum (m − g) with nesterov, else m
//   X = d / max(‖d‖, ε);  ns_steps times: G = X Xᵀ, X = a X + (b G + c G²) X      Newton–Schulz: X comes near to U Vᵀ of d = U S Vᵀ
//   p = p − lr weight_decay p − lr scale X
// scale: √max(1, A / B) ("original"), or .2 √max(A, B), with which a step is as large as AdamW's ("match_rms_adamw"; Liu et al., "Muon is
// scalable for LLM training", 2025, arXiv:2502.16982). The iteration is made of linear layers' products: with U = a I + b G + c G², the new
// X is U X. G is the smaller of X Xᵀ and Xᵀ X. Its nodes compute in BF16, or F32, which the strategy claims strongly.
//
// Muon is for hidden matrices. Embeddings, the head, norms and biases are AdamW's: its op, weakly, so that another optimizer may have them.
#include <algorithm>
#include <cmath>
#include <vector>

#include "galley/cpp/optimizer.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;
namespace mu = galley::muon;

// ---- Ops --------------------------------------------------------------------------------------------------------------------------------

uint32_t dtype_of(const Node& node) { return node.dtype(GALLEY_F32); }

void infer_momentum(const Node& node, Shapes& shapes) {
  const galley_operand& gradient = node.in(mu::kGradient);
  const std::string name = node.name();
  if (gradient.rank != 2) invalid(name + ": the gradient is " + shape_text(gradient) + ", not a matrix");
  if (count(node.in(mu::kMomentum)) != count(gradient))
    invalid(name + ": the gradient is " + shape_text(gradient) + ", but the momentum " + shape_text(node.in(mu::kMomentum)));
  if (gradient.dtype != GALLEY_F32 && !galley::sdk::detail::is_16_bit(gradient.dtype))
    invalid(name + ": the gradient has to be F32, BF16 or F16");
  if (node.in(mu::kFactor).dtype != GALLEY_F32 || node.in(mu::kApply).dtype != GALLEY_I32 || node.in(mu::kMomentum).dtype != GALLEY_F32)
    invalid(name + ": factor and momentum have to be F32, and apply I32");
  shapes.set(0, dtype_of(node), gradient.shape, 2);
}

void reference_momentum(const Node& node) {
  const int64_t n = count(node.in(mu::kGradient));
  double* const x = node.write<double>(0);
  std::fill_n(x, n, 0.0);
  if (!*node.read<int32_t>(mu::kApply)) return;
  const double keep = node.f("momentum", 0.95), factor = *node.read<double>(mu::kFactor);
  const bool nesterov = node.i("nesterov", 1) != 0;
  const double* const gradient = node.read<double>(mu::kGradient);
  double* const m = node.update<double>(mu::kMomentum);
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double g = factor * gradient[i];
    m[i] += (1 - keep) * (g - m[i]);
    x[i] = nesterov ? g + keep * (m[i] - g) : m[i];
    squares += x[i] * x[i];
  }
  const double norm = std::max(std::sqrt(squares), node.f("eps", 1e-7));
  for (int64_t i = 0; i < n; ++i) x[i] /= norm;
}

void infer_polynomial(const Node& node, Shapes& shapes) {
  const galley_operand &gram = node.in(0), &square = node.in(1);
  const std::string name = node.name();
  if (gram.rank != 2 || gram.shape[0] != gram.shape[1] || square.rank != 2 || square.shape[0] != gram.shape[0] ||
      square.shape[1] != gram.shape[1])
    invalid(name + ": " + shape_text(gram) + " and " + shape_text(square) + " have to be square matrices of one size");
  for (uint32_t i = 0; i < 2; ++i)
    if (node.in(i).dtype != GALLEY_F32 && !galley::sdk::detail::is_16_bit(node.in(i).dtype))
      invalid(name + ": input " + std::to_string(i) + " has to be F32, BF16 or F16");
  shapes.set(0, dtype_of(node), gram.shape, 2);
}

void reference_polynomial(const Node& node) {
  const int64_t n = columns(node.in(0));
  const double a = node.f("a", 3.4445), b = node.f("b", -4.775), c = node.f("c", 2.0315);
  for (int64_t i = 0; i < n * n; ++i)
    node.write<double>(0)[i] = b * node.read<double>(0)[i] + c * node.read<double>(1)[i] + (i % (n + 1) == 0 ? a : 0);
}

void reference_step(const Node& node) {
  const double decay = node.f("weight_decay", 0), scale = node.f("scale", 1);
  reference_steps(node, [&](const StepElement& e) { e.parameter = e.parameter * (1 - e.lr * decay) - e.lr * scale * e.gradient; });
}

constexpr uint64_t kFixed = GALLEY_OPERAND_NO_GRADIENT, kAny = GALLEY_OPERAND_ANY_DTYPE;

Op& muon_momentum() {
  static Op op("muon_momentum", "updates the momentum of a gradient (A, B), and makes a direction (A, B) of norm 1");
  op.flags(GALLEY_OP_PRIVATE)
      .input("gradient", GALLEY_ROLE_WHOLE, kFixed | kAny)
      .input("gradient_factor", GALLEY_ROLE_WHOLE, kFixed)
      .input("apply", GALLEY_ROLE_WHOLE, kFixed)
      .input("momentum_buffer", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | kFixed)
      .output("direction", GALLEY_ROLE_WHOLE, kAny)
      .grain(GALLEY_GRAIN_TENSOR)
      .number("momentum", 0.95, "share of the momentum that is kept")
      .number("eps", 1e-7, "least norm of a direction")
      .integer("nesterov", 1, "1: the direction looks ahead by the momentum")
      .infer<infer_momentum>()
      .reference<reference_momentum>();
  const auto inputs = [](std::vector<int64_t> shape, double apply, uint32_t gradient = GALLEY_F32) {
    return std::vector<CaseInput>{{gradient, shape}, {GALLEY_F32, {1}, 0.5, 1}, {GALLEY_I32, {1}, apply, apply}, {GALLEY_F32, shape}};
  };
  op.test("small", inputs({7, 5}, 1), Attrs().f("momentum", 0.8).f("eps", 10))
      .test("blocks", inputs({131, 671}, 1), Attrs().s("dtype", "f32"))
      .test("bf16", inputs({37, 671}, 1, GALLEY_BF16), Attrs().s("dtype", "bf16"))
      .test("f16", inputs({67, 37}, 1, GALLEY_F16), Attrs().s("dtype", "f32"))
      .test("plain", inputs({37, 67}, 1), Attrs().i("nesterov", 0))
      .test("skipped", inputs({7, 5}, 0));
  return op;
}

Op& muon_polynomial() {
  static Op op("muon_polynomial", "U = a I + b G + c S of square matrices (n, n)");
  op.flags(GALLEY_OP_PRIVATE)
      .input("gram", GALLEY_ROLE_WHOLE, kFixed | kAny)
      .input("square", GALLEY_ROLE_WHOLE, kFixed | kAny)
      .output("polynomial", GALLEY_ROLE_WHOLE, kAny)
      .number("a", 3.4445, "factor of the unit matrix")
      .number("b", -4.775, "factor of G")
      .number("c", 2.0315, "factor of S")
      .infer<infer_polynomial>()
      .reference<reference_polynomial>();
  const auto attrs = [](const char* dtype) { return Attrs().f("a", 3).f("b", -4).f("c", 2.5).s("dtype", dtype); };
  op.test("f32", {{GALLEY_F32, {37, 37}}, {GALLEY_F32, {37, 37}}}, attrs("f32"))
      .test("blocks", {{GALLEY_F32, {200, 200}}, {GALLEY_F32, {200, 200}}}, attrs("f32"))
      .test("bf16", {{GALLEY_BF16, {67, 67}}, {GALLEY_BF16, {67, 67}}}, attrs("bf16"));
  return op;
}

Op& muon_step() {
  static StepOp op("muon_step", "one step of Muon");
  op.number("weight_decay", 0, "times lr: by which the parameter shrinks")
      .number("scale", 1, "times lr: by which the direction is multiplied");
  op.reference<reference_step>();
  const auto attrs = [] { return Attrs().f("weight_decay", 0.1).f("scale", 1.5); };
  op.test("f32", {.shape = {37, 671}, .states = 0, .factor = false}, attrs())
      .test("bf16", {.shape = {131, 67}, .gradient = GALLEY_BF16, .states = 0, .factor = false}, attrs())
      .test("factor", {.shape = {7, 5}, .states = 0}, attrs())
      .test("skipped", {.shape = {7, 5}, .apply = false, .states = 0, .factor = false}, attrs());
  return op;
}

// ---- The strategy -----------------------------------------------------------------------------------------------------------------------

class Muon {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit Muon(const Options& options)
      : compute_(options.string("compute")),
        momentum_(options.number("momentum")),
        eps_(options.number("eps")),
        coefficients_(options.numbers("ns_coefficients")),
        nesterov_(options.boolean("nesterov")),
        steps_(options.integer("ns_steps")),
        matches_adamw_(options.string("adjust") == "match_rms_adamw"),
        updated_(options, "muon"),
        rest_(options.string("rest") == "adamw"),
        rest_rate_(options.given("rest_lr") ? "rest_lr" : "lr"),
        rest_betas_(options.numbers("rest_betas")),
        rest_eps_(options.number("rest_eps")) {
    if (rest_ && !matches_adamw_ && !options.given("rest_lr"))
      invalid("'rest_lr' is missing, the learning rate of AdamW for embeddings, head, norms and biases",
              "set rest_lr = 3e-4, or rest = \"none\" beside another optimizer, or adjust = \"match_rms_adamw\" and one rate for all");
  }

  void claim(const GraphReader& graph, const Claims& claims) const {
    if (claims.about(GALLEY_FACET_COMPUTE))
      for (const Claim& node : claims)
        if (galley_same_text(node.owner, "muon") && node.op_flags & GALLEY_OP_LOW) node.strong(0, compute_.c_str());
    if (!claims.about(GALLEY_FACET_UPDATE)) return;
    for (const Claim& parameter : claims) {
      const bool hidden = is_hidden_matrix(graph.info(parameter.tensor)) && updated_.names(parameter.name);
      if (hidden) updated_.claim(parameter, true);
      else if (rest_ && parameter.trainable) parameter.weak(0, "muon, rest: adamw");
    }
  }

  void build(UpdateGraph& graph, Trained trained) const {
    const galley_tensor_info p = graph.info(trained.parameter);
    if (is_hidden_matrix(p) && updated_.names(p.name)) orthogonal(graph, trained, p);
    else adamw(graph, trained, p);
  }

 private:
  static bool is_hidden_matrix(const galley_tensor_info& p) {
    return p.rank == 2 && !(p.flags & (GALLEY_TENSOR_EMBEDDING | GALLEY_TENSOR_HEAD));
  }

  void orthogonal(UpdateGraph& graph, Trained trained, const galley_tensor_info& p) const {
    if (const double factor = updated_.lr_factor(p); factor != 1) graph.scale_rate(trained.parameter, factor);
    const galley_tensor apply = graph.scalar(GALLEY_SCALAR_APPLY);
    const auto rows = static_cast<double>(p.shape[0]), columns = static_cast<double>(p.shape[1]);
    const auto attrs = [&] { return Attrs().s("dtype", compute_); };
    galley_tensor x = graph.node(
        "muon_momentum", nullptr,
        {trained.gradient, graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), apply, graph.state(std::string(p.name) + ".momentum_buffer", p)},
        attrs().f("momentum", momentum_).f("eps", eps_).i("nesterov", nesterov_))[0];
    const bool tall = rows > columns;
    for (int64_t k = 0; k < steps_; ++k) {
      const galley_tensor gram =
          tall ? graph.node("linear_dw", nullptr, {x, x}, attrs())[0] : graph.node("linear", nullptr, {x, x, 0}, attrs())[0];
      const galley_tensor square = graph.node("linear", nullptr, {gram, gram, 0}, attrs())[0];
      const galley_tensor u = graph.node("muon_polynomial", nullptr, {gram, square},
                                         attrs().f("a", coefficients_[0]).f("b", coefficients_[1]).f("c", coefficients_[2]))[0];
      x = tall ? graph.node("linear", nullptr, {x, u, 0}, attrs())[0]
               : graph.node("linear", nullptr, {u, x, 0}, attrs().i("transposed", 1))[0];
    }
    graph.node("muon_step", nullptr,
               {trained.parameter, x, graph.rate("lr", trained.parameter), graph.scalar(GALLEY_SCALAR_APPLIED_STEP), 0, apply},
               Attrs()
                   .f("weight_decay", updated_.decay(p))
                   .f("scale", matches_adamw_ ? 0.2 * std::sqrt(std::max(rows, columns)) : std::sqrt(std::max(1.0, rows / columns))),
               {});
  }

  void adamw(UpdateGraph& graph, Trained trained, const galley_tensor_info& p) const {
    StepNode(graph, trained, updated_, rest_rate_)
        .state("exp_avg")
        .state("exp_avg_sq", GALLEY_TENSOR_NON_NEGATIVE)
        .state_if(false, "max_exp_avg_sq")
        .add("adamw_step",
             Attrs().f("beta1", rest_betas_[0]).f("beta2", rest_betas_[1]).f("eps", rest_eps_).f("weight_decay", updated_.decay(p)));
  }

  std::string compute_;
  double momentum_, eps_;
  std::vector<double> coefficients_;
  bool nesterov_;
  int64_t steps_;
  bool matches_adamw_;
  Updated updated_;
  bool rest_;
  const char* rest_rate_;
  std::vector<double> rest_betas_;
  double rest_eps_;
};

const bool registered = add(muon_momentum()) && add(muon_polynomial()) && add(muon_step()) && add(strategy<Muon>("muon"));

}  // namespace

GALLEY_PLUGIN("muon", "1.0.0");
