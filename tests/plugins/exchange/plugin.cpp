// What a strategy over several processes is made of, in a run of one: the mean of a tensor over the ranks of an axis is the tensor, a shard
// is the whole, and the ranks are this process. It refuses what it would have to exchange with others.
#include <cstring>

#include "galley/cpp/strategy.hpp"

namespace {

using namespace galley::sdk;

void like_x(const Node& n, Shapes& out) { out.like(0, n.in(0)); }

/// `Number` is float in the kernel and double in the reference.
template <class Number>
void mean(const Node& n) {
  const Number* x = n.read<Number>(0);
  Number* y = n.write<Number>(0);
  for (int64_t i = 0; i < count(n.in(0)); ++i) y[i] = n.accumulates(0) ? y[i] + x[i] : x[i];
}

/// The mean of a gradient, as each rank has its own.
void mean_gradient(Backward& b) {
  const galley_attr* axis = b.node.attrs[0];
  b.d_inputs[0] = b.graph.node("exchange.mean", nullptr, {b.d_outputs[0]}, Attrs().s("axis", static_cast<const char*>(axis->data)),
                               {b.d_inputs[0]}, {b.adds(0)})[0];
}

void mean_cost(const Node& n, galley_cost& cost) { cost.link_bytes = 4.0 * static_cast<double>(count(n.in(0))); }

Op& mean_op() {
  static Op op("exchange.mean", "y = the mean of x over the ranks of `axis`; x (…)");
  return op.input("x", GALLEY_ROLE_ROWS)
      .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES)
      .flags(GALLEY_OP_EXCHANGE)
      .infer<like_x>()
      .gradient<mean_gradient>()
      .cost<mean_cost>()
      .reference<mean<double>>()
      .test("some", {{GALLEY_F32, {3, 5}}}, Attrs().s("axis", "data"));
}

class Mean {
 public:
  Mean(const Node& node, const galley_kernel_setup& setup) : node_(node) {
    if (setup.ranks) unsupported("exchange.mean between several processes");
  }
  static void query(const Node& node, const galley_target&, galley_kernel_plan&) {
    if (node.in(0).dtype != GALLEY_F32 || node.out(0).dtype != GALLEY_F32) unsupported("exchange.mean is in F32");
  }
  void run() const { mean<float>(node_); }

 private:
  Node node_;
};

class Exchange {
 public:
  explicit Exchange(const Options& options)
      : after_(options.string("after")),
        axis_(options.string("axis")),
        along_(options.string("along")),
        shard_(options.integer("shard")),
        strong_(options.boolean("strong")) {}

  void model(ModelGraph& g) const {
    const galley_run_info run = g.run();
    if (run.ranks != 1 || run.rank != 0 || run.n_axes != 1 || std::string_view(run.axes[0]->name) != "data" || run.axes[0]->ranks != 1)
      throw Failure(GALLEY_FAILED, "the run is one of " + std::to_string(run.ranks) + " ranks");
    for (galley_node n = g.next_node(0, GALLEY_NODES_MODEL); n; n = g.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = g.node(n);
      const std::string name = node.name;
      if (name.size() < after_.size() || name.compare(name.size() - after_.size(), after_.size(), after_) != 0) continue;
      const galley_tensor x = node.outputs[0];
      g.replace(x, g.node("exchange.mean", (name + ".mean").c_str(), {x}, Attrs().s("axis", axis_))[0]);
    }
  }

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_SHARD)) return;
    for (const Claim& c : claims) {
      if (c.kind != GALLEY_SUBJECT_STATE) continue;
      if (strong_) c.strong(shard_, along_.c_str());
      else c.weak(shard_, along_.c_str());
    }
  }

 private:
  std::string after_, axis_, along_;
  int64_t shard_;
  bool strong_;
};

// ---- The ranks of a run of one ------------------------------------------------------------------------------------------------

struct Alone {};

galley_status open_alone(void*, const galley_ranks_options* options, void** handle, galley_error* error) noexcept {
  return guard(error, [&] {
    const galley_ranks_options o = read(options);
    if (o.ranks != 1) invalid("the launcher says " + std::to_string(o.ranks) + " ranks, and there is 1");
    *handle = new Alone;
  });
}
galley_status exchange_alone(void*, const void* mine, int64_t bytes, void* all, galley_error*) noexcept {
  std::memcpy(all, mine, static_cast<size_t>(bytes));
  return GALLEY_OK;
}
galley_status check_alone(void*, int64_t* culprit, galley_error*) noexcept {
  *culprit = -1;
  return GALLEY_OK;
}
void close_alone(void* handle) noexcept { delete static_cast<Alone*>(handle); }

const galley_ranks alone = {sizeof(galley_ranks),  1,           nullptr, "alone", "cpu", open_alone, exchange_alone, check_alone,
                            [](void*) noexcept {}, close_alone, 0};

const bool registered =
    add(mean_op()) && add(kernel_of<Mean>("exchange.mean.alone", "exchange.mean")) && add(strategy<Exchange>("exchange")) && add(&alone);

}  // namespace

GALLEY_PLUGIN("exchange", "1.0.0");
