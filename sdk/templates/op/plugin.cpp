// An op as a Galley plugin: the activation Mish (Misra 2019, arXiv:1908.08681), y = x · tanh(softplus(x)), softplus(x) = ln(1 + exp(x)).
//
// An op says what a node does, for any device: the shape of what it makes, its gradient, and what it computes, as a reference in double
// precision. Kernels compute it on a device: cpu.cpp and cuda.cu make them of the arithmetic in rule.hpp, and `galley check` holds them
// against the reference. The strategy puts the op into a model. docs/ops.md says more about each part of an op.
#include <galley/cpp/strategy.hpp>

#include <cmath>

namespace {

using namespace galley::sdk;

// ---- Shapes -----------------------------------------------------------------------------------------------------------------------

// Called for each node, so that a wrong use is an error which names it. Checks all that kernels rely on.
void check_numbers(const Node& node, uint32_t input) {
  const uint32_t dtype = node.in(input).dtype;
  if (dtype != GALLEY_F32 && dtype != GALLEY_BF16 && dtype != GALLEY_F16)
    invalid(std::string(node.name()) + ": input " + std::to_string(input) + " has to be F32, BF16 or F16");
}
// The output is in the dtype that the node's attribute "dtype" says, or else in that of the input.
void infer(const Node& node, Shapes& out) {
  check_numbers(node, 0);
  out.set(0, node.dtype(node.in(0).dtype), node.in(0).shape, node.in(0).rank);
}
void infer_grad(const Node& node, Shapes& out) {
  check_numbers(node, 1);
  if (shape_text(node.in(0)) != shape_text(node.in(1)) || node.in(0).dtype != node.in(1).dtype)
    invalid(std::string(node.name()) + ": dy " + shape_text(node.in(0)) + " and x " + shape_text(node.in(1)) + " differ in shape or dtype");
  infer(node, out);
}

// ---- The gradient -----------------------------------------------------------------------------------------------------------------

// Runs once, while the run is planned, and appends a node to the backward graph. What it reads of the forward pass, here x, is kept until
// then. Where another node that reads x has written its gradient already, `adds` is true, and this one has to be added to it.
void gradient(Backward& b) {
  if (!b.needs(0)) return;
  b.d_inputs[0] = b.graph.node("mish_grad", nullptr, {b.d_outputs[0], b.node.inputs[0]}, {}, {b.d_inputs[0]}, {b.adds(0)})[0];
}

// ---- The references ---------------------------------------------------------------------------------------------------------------

// The definitions, word for word: what kernels do faster must not be repeated here. Numbers are passed as double, whatever their dtype is,
// and outputs are always written: where a node adds, Galley does.
double tanh_of_softplus(double x) { return std::tanh(std::log1p(std::exp(x))); }

void reference(const Node& node) {
  const double* x = node.read<double>(0);
  for (int64_t i = 0; i < count(node.in(0)); ++i) node.write<double>(0)[i] = x[i] * tanh_of_softplus(x[i]);
}
void reference_grad(const Node& node) {
  const double *dy = node.read<double>(0), *x = node.read<double>(1);
  for (int64_t i = 0; i < count(node.in(0)); ++i) {
    const double t = tanh_of_softplus(x[i]), sigmoid = 1 / (1 + std::exp(-x[i]));
    node.write<double>(0)[i] = dy[i] * (t + x[i] * (1 - t * t) * sigmoid);
  }
}

// ---- The ops ----------------------------------------------------------------------------------------------------------------------

// ROWS: row i of one operand belongs to row i of the others, so that Galley may compute some rows at a time. COMPUTE: read in the dtype in
// which the node computes. ANY_DTYPE: written in any, so that a cast after the node costs nothing. The last 0: y may take over the memory
// of input 0, if nobody else reads that. There is no cost: an op without products counts by the bytes of its operands.
//
// The cases are what tests run gradient rules and kernels on: sizes that no block divides, less than one block and several, each dtype, and
// numbers so far from 0 that a careless kernel overflows.
constexpr uint64_t F = GALLEY_F32, B = GALLEY_BF16, H = GALLEY_F16, compute = GALLEY_OPERAND_COMPUTE, any = GALLEY_OPERAND_ANY_DTYPE;

Op mish("mish", "y = x · tanh(ln(1 + exp(x)))");
Op mish_grad("mish_grad", "dx = dy · d(x · tanh(ln(1 + exp(x))))/dx");
const bool ops_added = add(mish.input("x", GALLEY_ROLE_ROWS, compute)
                               .output("y", GALLEY_ROLE_ROWS, any, 0)
                               .infer<infer>()
                               .gradient<gradient>()
                               .reference<reference>()
                               .test("small", {{F, {2, 3, 5}, -4, 4}})
                               .test("odd", {{F, {37, 67}, -30, 30}})
                               .test("far", {{F, {5, 4099}, -110, 110}})
                               .test("bf16", {{B, {5, 4099}, -110, 110}})
                               .test("f16", {{H, {37, 67}, -9, 9}})
                               .test("bf16_f32", {{B, {3, 611}, -9, 9}}, Attrs().s("dtype", "f32"))
                               .test("f32_f16", {{F, {3, 611}, -9, 9}}, Attrs().s("dtype", "f16"))) &&
                       add(mish_grad.input("dy", GALLEY_ROLE_ROWS, compute)
                               .input("x", GALLEY_ROLE_ROWS, compute)
                               .output("dx", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any, 0)
                               .infer<infer_grad>()
                               .reference<reference_grad>()
                               .test("small", {{F, {2, 3, 5}}, {F, {2, 3, 5}, -4, 4}})
                               .test("odd", {{F, {37, 67}}, {F, {37, 67}, -30, 30}})
                               .test("far", {{F, {5, 4099}}, {F, {5, 4099}, -110, 110}})
                               .test("bf16", {{B, {5, 4099}}, {B, {5, 4099}, -110, 110}})
                               .test("f16", {{H, {37, 67}}, {H, {37, 67}, -9, 9}})
                               .test("bf16_f32", {{B, {3, 611}}, {B, {3, 611}, -9, 9}}, Attrs().s("dtype", "f32")));

// ---- The strategy that puts it into a model ---------------------------------------------------------------------------------------

class MishEverywhere {
 public:
  static constexpr uint32_t phase = GALLEY_PHASE_REPLACE;  // before strategies that add to what is there

  explicit MishEverywhere(const Options&) {}

  // Nodes that nobody reads any more are gone afterwards. Names of nodes are unique, so the new one has a name of its own.
  void model(ModelGraph& graph) const {
    bool found = false;
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = graph.node(n);
      if (node.block < 0 || !is_activation(node.op)) continue;  // block: of the model's repeated layers; -1: a head's
      graph.replace(node.outputs[0], graph.node("mish", (std::string(node.name) + ".mish").c_str(), {node.inputs[0]})[0]);
      found = true;
    }
    if (!found)
      invalid("the model's layers have no node of gelu, silu, relu, relu2 or quick_gelu that mish could take the place of",
              "layers with gates (swiglu) have their activation within another op; take a model such as GPT-2");
    key_in_config(graph);
  }

  // What is saved has to say by which activation it was trained, or it would be another model wherever it is loaded.
  void save(ExportGraph& graph) const { graph.config(key_in_config(graph), "\"mish\""); }

 private:
  static bool is_activation(const char* op) {
    for (const char* known : {"gelu", "silu", "relu", "relu2", "quick_gelu"})
      if (galley_same_text(op, known)) return true;
    return false;
  }
  /// By which key transformers reads the activation of these nodes, and of no others. A family without one is refused before it is trained.
  static const char* key_in_config(const GraphReader& graph) {
    const char* json = graph.config_of("model_type");
    const std::string type = json ? json : "";
    if (type == "\"gpt2\"" || type == "\"gpt_neo\"" || type == "\"opt\"") return "activation_function";
    if (type == "\"gpt_neox\"") return "hidden_act";
    invalid("config.json of the model type " + type + " has no key that could say mish", "take gpt2, gpt_neo, gpt_neox or opt");
  }
};

const bool strategy_added = add(strategy<MishEverywhere>("mish"));

}  // namespace

GALLEY_PLUGIN("mish", "1.0.0");
