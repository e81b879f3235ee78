// An average of the weights (Polyak, Juditsky, "Acceleration of stochastic approximation by averaging", SIAM Journal on Control and
// Optimization 30(4), 1992; exponential, with its warmup, as tf.train.ExponentialMovingAverage with num_updates and the EMAModel of
// diffusers have it). After each applied step t, from 1:
//   d = decay, or with warmup min(decay, (1 + t) / (10 + t))
//   mean = d · mean + (1 − d) · weight
// It begins as the weights do. Validation, `galley eval`, sampling and export read it in the place of the weights; what is trained, and
// where a resumed run goes on, are the weights. Of an adapter it is the adapter's average, and a merged model has the product of averages.
// In 16 bit it is kept in amp's format "bf16", which is rounded by chance: to the nearest, no step of a thousandth would ever count.
#include "galley/cpp/optimizer.hpp"
#include "rule.hpp"

namespace {

using namespace galley::sdk;

void reference_ema_step(const Node& node) {
  const double decay = node.f("decay", 0);
  const bool warms_up = node.i("warmup", 0) != 0;
  reference_steps(node, [&](const StepElement& e) {
    const double share = galley::ema::Rule::share(decay, warms_up, static_cast<int64_t>(e.step));
    e.parameter = (1 - share) * e.parameter + share * e.gradient;
  });
}

Op& ema_step() {
  static StepOp op("ema_step", "mean = d mean + (1 - d) weight", "mean", "weight");
  op.number("decay", 0, "d: share of the mean that a step keeps")
      .integer("warmup", 0, "1: d is (1 + t) / (10 + t) in step t, while that is less")
      .reference<reference_ema_step>();
  const auto attrs = [](double decay, int64_t warmup) { return Attrs().f("decay", decay).i("warmup", warmup); };
  const auto of = [](std::vector<int64_t> shape, double step, uint32_t weight = GALLEY_F32, bool apply = true) {
    return StepCase{
        .shape = std::move(shape), .step = step, .apply = apply, .gradient = weight, .states = 0, .factor = false, .rate = false};
  };
  op.test("decay", of({37, 671}, 5), attrs(0.999, 0))
      .test("warmup", of({37, 67}, 5), attrs(0.999, 1))
      .test("after warmup", of({33}, 100000), attrs(0.99, 1))
      .test("follows at once", of({33}, 1), attrs(0, 0))
      .test("skipped", of({7, 5}, 3, GALLEY_F32, false), attrs(0.9, 0))
      .test("bf16", of({131, 67}, 7, GALLEY_BF16), attrs(0.9, 0))
      .test("f16", of({33}, 7, GALLEY_F16), attrs(0.9, 0));
  return op;
}

class Ema {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_AFTER;

  explicit Ema(const Options& options)
      : decay_(options.number("decay")),
        warmup_(options.boolean("warmup")),
        in_16_bit_(options.string("dtype") == "bf16"),
        evaluate_(options.boolean("evaluate")) {}

  void claim(const GraphReader&, const Claims& claims) const {
    if (!in_16_bit_ || !claims.about(GALLEY_FACET_STORAGE)) return;
    for (const Claim& state : claims)
      if (state.kind == GALLEY_SUBJECT_STATE && galley_same_text(state.owner, "ema")) state.weak(0, "bf16");
  }
  void build(UpdateGraph& graph, Trained trained) const {
    graph.node("ema_step", nullptr,
               {mean(graph, trained.parameter), trained.parameter, 0, graph.scalar(GALLEY_SCALAR_APPLIED_STEP), 0,
                graph.scalar(GALLEY_SCALAR_APPLY)},
               Attrs().f("decay", decay_).i("warmup", warmup_), {});
  }
  void evaluate(UpdateGraph& graph, galley_tensor parameter) const {
    if (evaluate_) graph.eval_as(parameter, mean(graph, parameter));
  }

 private:
  static galley_tensor mean(Graph& graph, galley_tensor parameter) {
    return graph.copy_of(std::string(graph.info(parameter).name) + ".ema", parameter);
  }

  double decay_;
  bool warmup_, in_16_bit_, evaluate_;
};

const bool registered = add(ema_step()) && add(strategy<Ema>("ema"));

}  // namespace

GALLEY_PLUGIN("ema", "1.0.0");
