// Subtracts from the output of a node the running mean of its columns. Training moves the mean first; evaluation reads it as it is.
// mean <- momentum * mean + (1 - momentum) * mean of the micro-batch's rows, as in batch normalization (Ioffe, Szegedy 2015,
// arXiv:1502.03167).
#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void like_x(const Node& n, Shapes& out) {
  if (count(n.in(1)) != columns(n.in(0))) invalid(std::string(n.name()) + ": the mean has " + shape_text(n.in(1)));
  out.like(0, n.in(0));
}

/// `Number` is float in a kernel and double in the reference.
template <class Number>
void observe(const Node& n) {
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  const Number* x = n.read<Number>(0);
  Number *mean = n.update<Number>(1), *y = n.write<Number>(0);
  const double momentum = n.f("momentum", 0.75);
  if (n.training())
    for (int64_t c = 0; c < C; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < R; ++r) sum += static_cast<double>(x[r * C + c]);
      mean[c] = static_cast<Number>(momentum * static_cast<double>(mean[c]) + (1 - momentum) * sum / static_cast<double>(R));
    }
  for (int64_t i = 0; i < R * C; ++i) y[i] = x[i];
}

template <class Number>
void subtract(const Node& n) {
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  const Number *x = n.read<Number>(0), *mean = n.read<Number>(1);
  Number* y = n.write<Number>(0);
  for (int64_t r = 0; r < R; ++r)
    for (int64_t c = 0; c < C; ++c) y[r * C + c] = x[r * C + c] - mean[c];
}

void hand_on(Backward& b) { b.d_inputs[0] = b.d_outputs[0]; }

void observe_run(const Node& n, void*) { observe<float>(n); }
void subtract_run(const Node& n, void*) { subtract<float>(n); }
bool in_f32(const Node& n) { return n.in(0).dtype == GALLEY_F32 && n.out(0).dtype == GALLEY_F32 && !n.accumulates(0); }

Op& observe_op() {
  static Op op("running-mean.observe", "y = x; in training mean = momentum · mean + (1 - momentum) · mean of x's rows; x (…, C), mean (C)");
  return op.input("x", GALLEY_ROLE_WHOLE)
      .input("mean", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .output("y", GALLEY_ROLE_WHOLE)
      .flags(GALLEY_OP_TRAINING_ONLY)
      .number("momentum", 0.75, "the share of the mean before")
      .infer<like_x>()
      .gradient<hand_on>()
      .reference<observe<double>>()
      .test("some", {{GALLEY_F32, {3, 5, 7}}, {GALLEY_F32, {7}}});
}
Op& subtract_op() {
  static Op op("running-mean.subtract", "y = x - mean; x (…, C), mean (C)");
  return op.input("x", GALLEY_ROLE_ROWS)
      .input("mean", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .output("y", GALLEY_ROLE_ROWS)
      .infer<like_x>()
      .gradient<hand_on>()
      .reference<subtract<double>>()
      .test("some", {{GALLEY_F32, {3, 5, 7}}, {GALLEY_F32, {7}}});
}
/// The mean of the latest rows alone, which is an output.
template <class Number>
void latest(const Node& n) {
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  const Number* x = n.read<Number>(0);
  for (int64_t c = 0; c < C; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < R; ++r) sum += static_cast<double>(x[r * C + c]);
    n.write<Number>(1)[c] = static_cast<Number>(sum / static_cast<double>(R));
  }
  for (int64_t i = 0; i < R * C; ++i) n.write<Number>(0)[i] = x[i];
}
void latest_run(const Node& n, void*) { latest<float>(n); }
void latest_shape(const Node& n, Shapes& out) {
  const int64_t C = columns(n.in(0));
  out.like(0, n.in(0));
  out.set(1, GALLEY_F32, &C, 1);
}
Op& latest_op() {
  static Op op("running-mean.latest", "y = x; mean: of x's rows; x (…, C), mean (C)");
  return op.input("x", GALLEY_ROLE_WHOLE)
      .output("y", GALLEY_ROLE_WHOLE)
      .output("mean", GALLEY_ROLE_WHOLE)
      .flags(GALLEY_OP_TRAINING_ONLY)
      .infer<latest_shape>()
      .gradient<hand_on>()
      .reference<latest<double>>()
      .test("some", {{GALLEY_F32, {3, 5, 7}}});
}
/// As observe, in evaluation too: no op that may write a state of forward.
Op& always_op() {
  static Op op("running-mean.always", "as running-mean.observe");
  return op.input("x", GALLEY_ROLE_WHOLE)
      .input("mean", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_INOUT | GALLEY_OPERAND_NO_GRADIENT)
      .output("y", GALLEY_ROLE_WHOLE)
      .number("momentum", 0.75, "the share of the mean before")
      .infer<like_x>()
      .gradient<hand_on>()
      .reference<observe<double>>();
}

class RunningMean {
 public:
  explicit RunningMean(const Options& options)
      : after_(options.string("after")),
        mistake_(options.string("mistake")),
        momentum_(options.number("momentum")),
        latest_(options.boolean("latest")) {}

  void model(ModelGraph& g) const {
    for (galley_node n = g.next_node(0, GALLEY_NODES_MODEL); n; n = g.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = g.node(n);
      const std::string name = node.name;
      if (name.size() < after_.size() || name.compare(name.size() - after_.size(), after_.size(), after_) != 0) continue;
      const galley_tensor x = node.outputs[0];
      const std::vector<int64_t> width = {g.info(x).shape[g.info(x).rank - 1]};
      const galley_tensor mean = make(g, name + ".mean", width);
      const Attrs attrs = Attrs().f("momentum", momentum_);
      galley_tensor y = x;
      if (mistake_ == "read before") y = g.node("running-mean.subtract", (name + ".early").c_str(), {y, mean})[0];
      const char* op = mistake_ == "always" ? "running-mean.always" : "running-mean.observe";
      const auto observed = [&](const std::string& called) {
        return latest_ ? g.node("running-mean.latest", called.c_str(), {y}, {}, {0, mean})[0]
                       : g.node(op, called.c_str(), {y, mean}, attrs)[0];
      };
      y = observed(name + ".observe");
      if (mistake_ == "twice") y = observed(name + ".again");
      y = g.node("running-mean.subtract", (name + ".subtract").c_str(), {y, mistake_ == "constant" ? copied(g, mean, width) : mean})[0];
      g.replace(x, y);
    }
  }

  void save(ExportGraph& g) const {
    for (galley_tensor t = g.next_tensor(0); t; t = g.next_tensor(t))
      if (g.info(t).kind == GALLEY_KIND_STATE && g.info(t).flags & GALLEY_TENSOR_WRITTEN_FORWARD) g.export_tensor(g.info(t).name, t);
  }

 private:
  galley_tensor make(ModelGraph& g, const std::string& name, const std::vector<int64_t>& shape) const {
    if (mistake_ == "cache") return g.cache(name, GALLEY_F32, shape);
    if (mistake_.empty()) return g.forward_state(name, shape);
    const uint32_t kind = mistake_ == "transient"     ? GALLEY_KIND_TRANSIENT
                          : mistake_ == "begun cache" ? GALLEY_KIND_CACHE
                                                      : GALLEY_KIND_STATE;
    galley_tensor_desc d = Graph::described(name, kind, GALLEY_F32, shape);
    if (kind != GALLEY_KIND_CACHE && mistake_ != "plain state") d.flags = GALLEY_TENSOR_WRITTEN_FORWARD;
    if (mistake_ == "parameter") d.parameter = first_parameter(g);
    if (mistake_ == "begun cache") d.initializer = "random_normal";
    return g.make(d);
  }
  static galley_tensor copied(ModelGraph& g, galley_tensor mean, const std::vector<int64_t>& shape) {
    const std::string name = "copied mean";
    galley_tensor_desc d = Graph::described(name, GALLEY_KIND_CONSTANT, GALLEY_F32, shape);
    d.initializer = "copy";
    d.initializer_inputs = &mean;
    d.n_initializer_inputs = 1;
    return g.make(d);
  }
  static galley_tensor first_parameter(ModelGraph& g) {
    for (galley_tensor t = g.next_tensor(0); t; t = g.next_tensor(t))
      if (g.info(t).kind == GALLEY_KIND_PARAMETER) return t;
    return 0;
  }

  std::string after_, mistake_;
  double momentum_;
  bool latest_;
};

const bool registered = add(observe_op()) && add(subtract_op()) && add(always_op()) && add(latest_op()) &&
                        add(kernel<latest_run, in_f32>("running-mean.latest.cpu", "running-mean.latest")) &&
                        add(kernel<observe_run, in_f32>("running-mean.observe.cpu", "running-mean.observe")) &&
                        add(kernel<subtract_run, in_f32>("running-mean.subtract.cpu", "running-mean.subtract")) &&
                        add(kernel<observe_run, in_f32>("running-mean.always.cpu", "running-mean.always")) &&
                        add(strategy<RunningMean>("running-mean"));

}  // namespace

GALLEY_PLUGIN("running-mean", "1.0.0");
