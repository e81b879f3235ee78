// SGD with momentum (Sutskever, Martens, Dahl, Hinton, "On the importance of initialization and momentum in deep learning", ICML 2013),
// as torch.optim.SGD defines it:
//   g = factor · gradient + weight_decay · p
//   b = g at the first step, momentum · b + (1 − dampening) · g later
//   p = p − lr · (b, or g + momentum · b with nesterov; g without momentum)
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

enum Input : uint32_t { Parameter, Gradient, Rate, Step, Factor, Apply, Momentum };

void infer_sgd_step(const Node& node, Shapes&) {
  if (const uint32_t dtype = node.in(Gradient).dtype; dtype != GALLEY_F32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16)
    invalid(std::string(node.name()) + ": the gradient has to be F32, BF16 or F16");
  for (const uint32_t i : {Parameter, Rate, Factor, Momentum})
    if (node.has(i) && node.in(i).dtype != GALLEY_F32)
      invalid(std::string(node.name()) + ": input " + std::to_string(i) + " has to be F32");
  if (node.in(Step).dtype != GALLEY_I64 || node.in(Apply).dtype != GALLEY_I32)
    invalid(std::string(node.name()) + ": the step has to be I64, and apply I32");
  for (const uint32_t i : {Gradient, Momentum})
    if (node.has(i) && count(node.in(i)) != count(node.in(Parameter)))
      invalid(std::string(node.name()) + ": the parameter is " + shape_text(node.in(Parameter)) + ", but input " + std::to_string(i) +
              " is " + shape_text(node.in(i)));
}

void reference_sgd_step(const Node& node) {
  if (!*node.read<int32_t>(Apply)) return;
  const double lr = *node.read<double>(Rate), factor = *node.read<double>(Factor);
  const double momentum = node.f("momentum", 0), dampening = node.f("dampening", 0), decay = node.f("weight_decay", 0);
  const bool nesterov = node.i("nesterov", 0) != 0, first = *node.read<int64_t>(Step) == 1;
  const double* gradient = node.read<double>(Gradient);
  double* p = node.update<double>(Parameter);
  double* buffer = node.has(Momentum) ? node.update<double>(Momentum) : nullptr;
  for (int64_t i = 0; i < count(node.in(Parameter)); ++i) {
    double g = factor * gradient[i] + decay * p[i];
    if (buffer) {
      buffer[i] = first ? g : momentum * buffer[i] + (1 - dampening) * g;
      g = nesterov ? g + momentum * buffer[i] : buffer[i];
    }
    p[i] -= lr * g;
  }
}

Op& sgd_step() {
  static Op op("sgd_step", "one step of stochastic gradient descent, with a momentum buffer or without");
  constexpr uint32_t scalar = GALLEY_OPERAND_NO_GRADIENT, in_place = GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT, F = GALLEY_F32;
  op.input("parameter", GALLEY_ROLE_ROWS, in_place)
      .input("gradient", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT | GALLEY_OPERAND_ANY_DTYPE)
      .input("lr", GALLEY_ROLE_WHOLE, scalar)
      .input("applied_step", GALLEY_ROLE_WHOLE, scalar)
      .input("gradient_factor", GALLEY_ROLE_WHOLE, scalar)
      .input("apply", GALLEY_ROLE_WHOLE, scalar)
      .input("momentum_buffer", GALLEY_ROLE_ROWS, in_place | GALLEY_OPERAND_OPTIONAL)
      .grain(GALLEY_GRAIN_ELEMENT)
      .number("momentum", 0, "decay of the velocity")
      .number("dampening", 0, "by which the gradient enters it less")
      .number("weight_decay", 0, "times the parameter: added to the gradient")
      .integer("nesterov", 0, "1: Nesterov momentum")
      .infer<infer_sgd_step>()
      .reference<reference_sgd_step>();
  const auto inputs = [](std::vector<int64_t> shape, double step, double apply, bool buffer, uint32_t gradient = GALLEY_F32) {
    return std::vector<CaseInput>{{F, shape},
                                  {gradient, shape},
                                  {F, {1}, 0.01, 0.1},
                                  {GALLEY_I64, {1}, step, step},
                                  {F, {1}, 0.5, 1},
                                  {GALLEY_I32, {1}, apply, apply},
                                  {buffer ? F : 0, shape}};
  };
  op.test("plain", inputs({7, 5}, 3, 1, false))
      .test("decay", inputs({37, 671}, 1, 1, false), Attrs().f("weight_decay", 0.1))
      .test("first", inputs({33}, 1, 1, true), Attrs().f("momentum", 0.9).f("dampening", 0.5))
      .test("momentum", inputs({37, 671}, 2, 1, true), Attrs().f("momentum", 0.9).f("dampening", 0.5).f("weight_decay", 0.1))
      .test("nesterov", inputs({131, 67}, 2, 1, true), Attrs().f("momentum", 0.9).i("nesterov", 1))
      .test("skipped", inputs({7, 5}, 2, 0, true), Attrs().f("momentum", 0.9))
      .test("bf16", inputs({37, 671}, 3, 1, false, GALLEY_BF16))
      .test("bf16 first", inputs({33}, 1, 1, true, GALLEY_BF16), Attrs().f("momentum", 0.9))
      .test("f16", inputs({131, 67}, 2, 1, true, GALLEY_F16), Attrs().f("momentum", 0.9).i("nesterov", 1));
  return op;
}

class Sgd {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;

  explicit Sgd(const Options& options)
      : momentum_(options.number("momentum")),
        dampening_(options.number("dampening")),
        decay_(options.number("weight_decay")),
        nesterov_(options.boolean("nesterov")),
        decay_all_(options.string("decay_on") == "all") {
    if (nesterov_ && (momentum_ == 0 || dampening_ != 0)) invalid("nesterov takes a momentum and no dampening");
  }

  void claim(const GraphReader&, const galley_subject& subject, Claim& out) const {
    if (subject.facet == GALLEY_FACET_UPDATE && subject.trainable) out.weak(0, "sgd");
  }

  void build(Graph& graph, Trained trained) const {
    const galley_tensor_info p = graph.info(trained.parameter);
    const bool decays = decay_all_ || !(p.flags & GALLEY_TENSOR_NO_DECAY);
    galley_tensor buffer = 0;
    if (momentum_ != 0) buffer = graph.state(std::string(p.name) + ".momentum_buffer", p);
    graph.node(
        "sgd_step", nullptr,
        {trained.parameter, trained.gradient, graph.rate("lr", trained.parameter), graph.scalar(GALLEY_SCALAR_APPLIED_STEP),
         graph.scalar(GALLEY_SCALAR_GRADIENT_FACTOR), graph.scalar(GALLEY_SCALAR_APPLY), buffer},
        Attrs().f("momentum", momentum_).f("dampening", dampening_).f("weight_decay", decays ? decay_ : 0.0).i("nesterov", nesterov_), {});
  }

 private:
  double momentum_, dampening_, decay_;
  bool nesterov_, decay_all_;
};

const bool registered = add(sgd_step()) && add(strategy<Sgd>("sgd"));

}  // namespace

GALLEY_PLUGIN("sgd", "1.0.0");
