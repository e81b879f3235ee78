// Ops from a table. For tests, built outside the tree, and twice, with two ids: as a bridge to another language would, the plugin has one
// set of functions for all of its ops, kernels and strategies, and tells them apart by `self`.
#include <galley/cpp/strategy.hpp>

#include <cmath>
#include <deque>

#ifndef BRIDGE
#error "BRIDGE is the id"
#endif

namespace {

using namespace galley::sdk;

/// y = f(x), and dx = dy · f'(x).
struct Row {
  std::string name;
  double (*f)(double);
  double (*slope)(double);
  bool backward = false;
};

const std::deque<Row>& rows() {
  static const std::deque<Row> all = [] {
    std::deque<Row> out;
    const std::string id = BRIDGE;
    const Row functions[] = {id == "bridge-a"
                                 ? Row{"sine", [](double x) { return x + std::sin(x) / 8; }, [](double x) { return 1 + std::cos(x) / 8; }}
                                 : Row{"cube", [](double x) { return x + x * x * x / 64; }, [](double x) { return 1 + 3 * x * x / 64; }},
                             Row{"half", [](double x) { return x / 2; }, [](double) { return 0.5; }}};
    for (const Row& row : functions)
      for (const bool backward : {false, true}) {
        out.push_back(row);
        out.back().name = id + "." + row.name + (backward ? "_grad" : "");
        out.back().backward = backward;
      }
    return out;
  }();
  return all;
}
const Row& row_of(void* self) { return *static_cast<const Row*>(self); }

galley_status infer(void*, const galley_node_view* node, galley_shape* const* outputs, galley_error* error) noexcept {
  return guard(error, [&] { Shapes(outputs).like(0, Node(node).in(0)); });
}

/// Inputs: x; of a slope dy, then x.
template <class Real>
void compute(const Row& row, const Node& node) {
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    const double first = static_cast<double>(node.read<Real>(0)[i]);
    node.write<Real>(0)[i] = static_cast<Real>(row.backward ? first * row.slope(static_cast<double>(node.read<Real>(1)[i])) : row.f(first));
  }
}
galley_status reference(void* self, const galley_node_view* node, galley_error* error) noexcept {
  return guard(error, [&] { compute<double>(row_of(self), Node(node)); });
}

galley_status gradient(void* self, const galley_graph_verbs* verbs, galley_graph* graph, const galley_gradient_call* given,
                       galley_error* error) noexcept {
  return guard(error, [&] {
    const galley_gradient_call call = read(given);
    if (!call.need[0]) return;
    Graph g(verbs, graph);
    const galley_tensor x = g.node(call.node).inputs[0];
    call.d_inputs[0] = g.node((row_of(self).name + "_grad").c_str(), nullptr, {call.d_outputs[0], x}, {}, {call.d_inputs[0]})[0];
  });
}

galley_status query(void* self, const galley_node_view* const* nodes, uint32_t, const galley_target*, galley_kernel_plan*,
                    galley_error* error) noexcept {
  return guard(error, [&] {
    if (row_of(self).name != nodes[0]->op) throw Failure(GALLEY_FAILED, "the self of another row");
    if (nodes[0]->inputs[0]->dtype != GALLEY_F32) unsupported("dtypes");
  });
}
struct State {
  const Row& row;
  Node node;
};
galley_status prepare(void* self, const galley_node_view* const* nodes, uint32_t, const galley_kernel_setup*, void** state,
                      galley_error* error) noexcept {
  return guard(error, [&] { *state = new State{row_of(self), Node(nodes[0])}; });
}
galley_status enqueue(void* state, galley_queue*, galley_error* error) noexcept {
  return guard(error, [&] { compute<float>(static_cast<State*>(state)->row, static_cast<State*>(state)->node); });
}
void release(void* state) noexcept { delete static_cast<State*>(state); }

/// A strategy for each row that is no slope: what the model's blocks add to the stream goes through f.
galley_status create(void* self, const galley_options*, void** instance, galley_error*) noexcept {
  *instance = self;
  return GALLEY_OK;
}
void destroy(void*) noexcept {}
galley_status model(void* instance, const galley_model_verbs* verbs, galley_graph* graph, galley_error* error) noexcept {
  return guard(error, [&] {
    ModelGraph g(verbs, graph);
    std::vector<galley_tensor> sums;
    for (galley_node n = g.next_node(0); n; n = g.next_node(n))
      if (g.node(n).op_flags & GALLEY_OP_LINEAR && g.node(n).block >= 0) sums.push_back(g.node(n).outputs[0]);
    for (const galley_tensor y : sums)
      g.replace(y, g.node(row_of(instance).name.c_str(), (row_of(instance).name + " of " + g.info(y).name).c_str(), {y})[0]);
  });
}
const void* get(void*, const char* id) noexcept {
  static const galley_rewrite table = [] {
    auto t = fresh<galley_rewrite>();
    t.model = model;
    return t;
  }();
  return galley_same_text(id, GALLEY_REWRITE) ? &table : nullptr;
}

bool register_rows() {
  static std::deque<galley_op> ops;
  static std::deque<galley_strategy> strategies;
  static const galley_operand_rule operands[] = {rule("x", GALLEY_ROLE_ROWS), rule("of", GALLEY_ROLE_ROWS), rule("y", GALLEY_ROLE_ROWS)};
  static const galley_operand_rule* const inputs[] = {&operands[0], &operands[1]};
  static const galley_operand_rule* const outputs[] = {&operands[2]};
  for (const Row& row : rows()) {
    void* self = const_cast<Row*>(&row);
    galley_op& op = ops.emplace_back(fresh<galley_op>());
    op.self = self;
    op.name = row.name.c_str();
    op.inputs = inputs;
    op.outputs = outputs;
    op.n_inputs = row.backward ? 2 : 1;
    op.n_outputs = 1;
    op.infer = infer;
    if (!row.backward) op.gradient = gradient;
    op.reference = reference;
    galley_kernel kernel = fresh<galley_kernel>();
    kernel.self = self;
    kernel.name = row.name.c_str();
    kernel.op = row.name.c_str();
    kernel.device = GALLEY_KERNEL_DEVICE;
    kernel.query = query;
    kernel.prepare = prepare;
    kernel.enqueue = enqueue;
    kernel.release = release;
    add(&op);
    add(kernel);
    if (row.backward) continue;
    strategies.push_back({sizeof(galley_strategy), 1, self, row.name.c_str(), create, destroy, get, 0});
    add(&strategies.back());
  }
  return true;
}
const bool registered = register_rows();

}  // namespace

GALLEY_PLUGIN(BRIDGE, "1.0.0");
