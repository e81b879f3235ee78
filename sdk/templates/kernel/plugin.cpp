// An optimizer with kernels for the CPU and for CUDA: Fromage (Bernstein, Vahdat, Yue, Liu 2020, arXiv:2002.03432). For each tensor p with
// the gradient g:
//   p = (p − lr · ‖p‖ / ‖g‖ · g) / √(1 + lr²);   without ‖p‖ / ‖g‖ where one of the norms is 0
// So a step has a reduction (two norms) and an element-wise part, as many ops have. templates/optimizer explains ops and strategies; what is new
// here is in cuda.cu.
#include <galley/cpp/strategy.hpp>

#include <cmath>

namespace {

using namespace galley::sdk;

enum Input : uint32_t { Parameter, Gradient, Rate, Factor, Apply };

void infer(const Node& node, Shapes&) {
  if (count(node.in(Gradient)) != count(node.in(Parameter)))
    invalid(std::string(node.name()) + ": parameter " + shape_text(node.in(Parameter)) + " and gradient " + shape_text(node.in(Gradient)) +
            " differ");
}

void reference(const Node& node) {
  if (!*node.read<int32_t>(Apply)) return;
  const double lr = *node.read<double>(Rate), factor = *node.read<double>(Factor);
  const double* gradient = node.read<double>(Gradient);
  double *p = node.update<double>(Parameter), p_squares = 0, g_squares = 0;
  const int64_t n = count(node.in(Parameter));
  for (int64_t i = 0; i < n; ++i) {
    p_squares += p[i] * p[i];
    g_squares += factor * gradient[i] * (factor * gradient[i]);
  }
  const double ratio = p_squares > 0 && g_squares > 0 ? std::sqrt(p_squares / g_squares) : 1;
  for (int64_t i = 0; i < n; ++i) p[i] = (p[i] - lr * ratio * factor * gradient[i]) / std::sqrt(1 + lr * lr);
}

// WHOLE: the norms need all of a tensor, so that Galley must not split it. The cases are what tests run every kernel on, with numbers from
// the given ranges: sizes of less than a block of threads and of several with a rest, one whose loops all turn more than once, norms that
// are 0, a step that is skipped.
Op& fromage_step() {
  static Op op("fromage_step", "p = (p - lr · ‖p‖/‖g‖ · g) / sqrt(1 + lr²)");
  constexpr uint64_t scalar = GALLEY_OPERAND_NO_GRADIENT, F = GALLEY_F32;
  op.input("parameter", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .input("gradient", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .input("lr", GALLEY_ROLE_WHOLE, scalar)
      .input("gradient_factor", GALLEY_ROLE_WHOLE, scalar)
      .input("apply", GALLEY_ROLE_WHOLE, scalar)
      .infer<infer>()
      .reference<reference>();
  const auto inputs = [](std::vector<int64_t> shape, double largest = 1, double apply = 1) {
    return std::vector<CaseInput>{
        {F, shape, -largest, largest}, {F, shape, -0.01, 0.01}, {F, {1}, 0.01, 0.1}, {F, {1}, 0.5, 1}, {GALLEY_I32, {1}, apply, apply}};
  };
  op.test("small", inputs({7, 5}))
      .test("blocks", inputs({37, 671}))
      .test("large", inputs({525, 1000}))
      .test("zeros", inputs({131, 67}, 0))
      .test("skipped", inputs({7, 5}, 1, 0));
  return op;
}

class Fromage {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit Fromage(const Options&) {}

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_UPDATE)) return;
    for (const Claim& parameter : claims)
      if (parameter.trainable) parameter.weak(0, "fromage");
  }
  void build(UpdateGraph& graph, Trained trained) const {
    graph.node("fromage_step", nullptr,
               {trained.parameter, trained.gradient, graph.rate("lr", trained.parameter), graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR),
                graph.scalar(GALLEY_SCALAR_APPLY)},
               Attrs(), {});
  }
};

const bool registered = add(fromage_step()) && add(strategy<Fromage>("fromage"));

}  // namespace

GALLEY_PLUGIN("fromage", "1.0.0");
