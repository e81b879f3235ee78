// Gradient noise (Neelakantan et al. 2015, arXiv:1511.06807): g = g + N(0, eta / (1 + t)^gamma), t the updates before this one. For
// tests, built outside the tree: a strategy that changes gradients before any optimizer sees them, in place.
#include <galley/cpp/strategy.hpp>

#include <cmath>

namespace {

using namespace galley::sdk;

enum Input : uint32_t { Gradient, Factor, Step, Random, Apply };

// Box, Muller 1958: two normal numbers from two words; element i takes one of the pair that its block makes.
double normal(uint64_t key, int64_t i) {
  const galley_philox_block words = galley_random_block(key, 0, 0, i / 2);
  const double u = (words.word[0] + 1.0) * 0x1p-32, angle = 6.283185307179586 * words.word[1] * 0x1p-32;
  return std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(angle) : std::cos(angle));
}

template <class Real>
void add_noise(const Node& node) {
  if (!*node.read<int32_t>(Apply)) return;
  const double factor = static_cast<double>(*node.read<Real>(Factor)), t = static_cast<double>(*node.read<int64_t>(Step) - 1);
  // The optimizer multiplies by the factor: what is added here is divided by it.
  const double deviation = std::sqrt(node.f("eta", 0) / std::pow(1 + t, node.f("gamma", 0.55))) / factor;
  const uint64_t key = galley_random_key(node.read<int64_t>(Random), node.stream());
  Real* g = node.update<Real>(Gradient);
  for (int64_t i = 0; i < count(node.in(Gradient)); ++i) g[i] += static_cast<Real>(deviation * normal(key, i));
}

void infer(const Node&, Shapes&) {}
void reference(const Node& node) { add_noise<double>(node); }
void run(const Node& node, void*) { add_noise<float>(node); }
bool supports(const Node& node) { return node.in(Gradient).dtype == GALLEY_F32; }

Op op("gradient_noise", "g = g + N(0, eta / (1 + t)^gamma) / factor");
const bool op_added = add(op.input("gradient", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
                              .input("gradient_factor", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                              .input("step", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                              .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                              .input("apply", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                              .number("eta", 0, "variance of the noise at first")
                              .number("gamma", 0.55, "how fast it falls")
                              .infer<infer>()
                              .reference<reference>());
const bool kernel_added = add(kernel<run, supports>("gradient_noise.cpu", "gradient_noise"));

class GradientNoise {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_GRADIENT;
  explicit GradientNoise(const Options& options) : eta_(options.number("eta")), gamma_(options.number("gamma")) {}

  void build(UpdateGraph& graph, Trained trained) const {
    const std::string name = std::string(graph.info(trained.parameter).name) + ".noise";
    graph.node("gradient_noise", name.c_str(),
               {trained.gradient, graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), graph.scalar(GALLEY_SCALAR_APPLIED_STEP),
                graph.scalar(GALLEY_SCALAR_RANDOM), graph.scalar(GALLEY_SCALAR_APPLY)},
               Attrs().f("eta", eta_).f("gamma", gamma_), {});
  }

 private:
  double eta_, gamma_;
};
const bool strategy_added = add(strategy<GradientNoise>("gradient-noise"));

}  // namespace

GALLEY_PLUGIN("gradient-noise", "1.0.0");
