// What each strategy does wrongly is said in its manifest. "copies" does nothing wrong, and so do "decays-wrongly" and "starts-elsewhere"
// with the options that say so: what finds breaches has to let them pass.
#include <string>
#include <vector>

#include "galley/cpp/half.hpp"
#include "galley/cpp/optimizer.hpp"

namespace {

using namespace galley::sdk;

constexpr uint64_t none = GALLEY_OPERAND_NO_GRADIENT;
void like_first(const Node& node, Shapes& out) { out.like(0, node.in(0)); }
void in_place(const Node&, Shapes&) {}
bool in_f32(const Node& node) { return node.in(0).dtype == GALLEY_F32; }

// ---- An op whose kernel is wrong: gradient += share · parameter

template <class Real, int Times>
void add_share(const Node& node) {
  const Real share = static_cast<Real>(node.f("share", 0));
  const Real* p = node.read<Real>(1);
  Real* g = node.update<Real>(0);
  for (int times = 0; times < Times; ++times)
    for (int64_t i = 0; i < count(node.in(0)); ++i) g[i] += share * p[i];
}
void add_twice(const Node& node, void*) { add_share<float, 2>(node); }

Op& breach_add() {
  static Op op("breach_add", "gradient += share · parameter");
  op.input("gradient", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | none)
      .input("parameter", GALLEY_ROLE_WHOLE, none)
      .number("share", 0, "of the parameter")
      .infer<in_place>()
      .reference<add_share<double, 1>>();
  return op;
}

class AddsTwice {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_GRADIENT;
  explicit AddsTwice(const Options&) {}
  void build(UpdateGraph& graph, Trained trained) const {
    graph.node("breach_add", nullptr, {trained.gradient, trained.parameter}, Attrs().f("share", 0.1), {});
  }
};

// ---- Ops whose kernels are right: they do what no strategy should that declares the same bits

template <class Real>
void copy(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i) node.write<Real>(0)[i] = node.read<Real>(0)[i];
}
template <class Real>
void odd(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i) node.write<Real>(0)[i] = i % 2 ? node.read<Real>(0)[i] : Real(0);
}
template <class Real>
void rounded(const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    Bf16 number;
    from_float(static_cast<float>(node.read<Real>(0)[i]), number);
    node.write<Real>(0)[i] = static_cast<Real>(to_float(number));
  }
}
template <void compute(const Node&)>
void run(const Node& node, void*) {
  compute(node);
}

/// The gradient of an op y = f(x) is `op` of y's gradient.
template <const char* const* op>
void through(Backward& b) {
  if (b.needs(0)) b.d_inputs[0] = b.graph.node(*op, (std::string(b.node.name) + ".dx").c_str(), {b.d_outputs[0]}, {}, {b.d_inputs[0]})[0];
}
constexpr const char* kCopy = "breach_copy";
constexpr const char* kOdd = "breach_odd";

template <void reference(const Node&)>
Op& map(Op& op) {
  op.input("x", GALLEY_ROLE_ROWS).output("y", GALLEY_ROLE_ROWS).infer<like_first>().reference<reference>();
  return op;
}
Op& breach_copy() {
  static Op op("breach_copy", "y = x");
  map<copy<double>>(op).gradient<through<&kCopy>>();
  return op;
}
Op& breach_pass() {
  static Op op("breach_pass", "y = x, of which every second number has a gradient");
  map<copy<double>>(op).gradient<through<&kOdd>>();
  return op;
}
Op& breach_odd() {
  static Op op("breach_odd", "every second number of x, and zeros");
  return map<odd<double>>(op);
}
Op& breach_round() {
  static Op op("breach_round", "x, rounded to BF16");
  map<rounded<double>>(op).gradient<through<&kCopy>>();
  return op;
}

/// What the first linear layer of a block makes goes through an op.
template <const char* const* op>
class Through {
 public:
  explicit Through(const Options&) {}
  void model(ModelGraph& graph) const {
    for (galley_node n = graph.next_node(0); n; n = graph.next_node(n)) {
      const galley_node_info node = graph.node(n);
      if (!galley_same_text(node.op, "linear") || node.block < 0) continue;
      graph.replace(node.outputs[0], graph.node(*op, (std::string(node.name) + ".through").c_str(), {node.outputs[0]})[0]);
      return;
    }
  }
};
constexpr const char* kPass = "breach_pass";
constexpr const char* kRound = "breach_round";

// ---- An optimizer that is another one

class DecaysWrongly {
 public:
  static constexpr uint32_t stages = GALLEY_STAGE_STEP;
  explicit DecaysWrongly(const Options& options) : factor_(options.number("factor")), updated_(options, "decays-wrongly") {}
  void claim(const GraphReader&, const Claims& claims) const { updated_.claim(claims); }
  void build(UpdateGraph& graph, Trained trained) const {
    StepNode(graph, trained, updated_)
        .state("exp_avg")
        .state("exp_avg_sq", GALLEY_TENSOR_NON_NEGATIVE)
        .state_if(false, "max_exp_avg_sq", GALLEY_TENSOR_NON_NEGATIVE)
        .add("adamw_step", Attrs()
                               .f("beta1", 0.9)
                               .f("beta2", 0.999)
                               .f("eps", 1e-8)
                               .f("weight_decay", factor_ * updated_.decay(graph.info(trained.parameter))));
  }

 private:
  double factor_;
  Updated updated_;
};

// ---- An adapter

class StartsElsewhere {
 public:
  explicit StartsElsewhere(const Options& options) : begin_(options.number("begin")) {}
  void model(ModelGraph& graph) const {
    std::vector<galley_node> linear;
    for (galley_node n = graph.next_node(0); n; n = graph.next_node(n))
      if (const galley_node_info node = graph.node(n); galley_same_text(node.op, "linear") && node.block >= 0) linear.push_back(n);
    for (const galley_node n : linear) {
      const galley_node_info node = graph.node(n);
      const galley_tensor y = node.outputs[0];
      const galley_tensor_info info = graph.info(y);
      const std::string name = std::string(node.name) + ".factor";
      const galley_tensor factor =
          graph.parameter(name, {info.shape[info.rank - 1]}, "adapter/adapter.safetensors", "fill", Attrs().f("value", begin_));
      graph.replace(y, graph.node("scale_columns", (name + ".y").c_str(), {y, factor})[0]);
    }
  }
  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_TRAINABLE)) return;
    for (const Claim& parameter : claims) galley_same_text(parameter.owner, "starts-elsewhere") ? parameter.strong(1) : parameter.weak(0);
  }

 private:
  double begin_;
};

const bool registered = add(breach_add()) && add(breach_copy()) && add(breach_pass()) && add(breach_odd()) && add(breach_round()) &&
                        add(kernel<add_twice, in_f32>("breach_add.cpu", "breach_add")) &&
                        add(kernel<run<copy<float>>, in_f32>("breach_copy.cpu", "breach_copy")) &&
                        add(kernel<run<copy<float>>, in_f32>("breach_pass.cpu", "breach_pass")) &&
                        add(kernel<run<odd<float>>, in_f32>("breach_odd.cpu", "breach_odd")) &&
                        add(kernel<run<rounded<float>>, in_f32>("breach_round.cpu", "breach_round")) &&
                        add(strategy<AddsTwice>("adds-twice")) && add(strategy<Through<&kPass>>("drops-gradient")) &&
                        add(strategy<Through<&kRound>>("rounds-activations")) && add(strategy<Through<&kCopy>>("copies")) &&
                        add(strategy<DecaysWrongly>("decays-wrongly")) && add(strategy<StartsElsewhere>("starts-elsewhere"));

}  // namespace

GALLEY_PLUGIN("breaches", "1.0.0");
