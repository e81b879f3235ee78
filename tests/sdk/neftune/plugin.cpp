// NEFTune (Jain et al. 2023, arXiv:2310.05914): y = x + alpha / sqrt(S · C) · U(−1, 1), x (B, S, C) the embeddings of tokens, in training
// only. For tests, built outside the tree: random numbers of each row, which neither the size of a micro-batch nor a chunk changes.
#include <galley/cpp/strategy.hpp>

#include <cmath>

namespace {

using namespace galley::sdk;

template <class Real>
void add_noise(const Node& node) {
  const Real* x = node.read<Real>(0);
  const int64_t* random = node.read<int64_t>(1);
  Real* y = node.write<Real>(0);
  const int64_t R = rows(node.in(0)), C = columns(node.in(0)), S = node.view()->length > 0 ? node.view()->length : 1;
  const double size = node.training() ? node.f("alpha", 5) / std::sqrt(static_cast<double>(S * C)) : 0;
  const uint64_t key = galley_random_key(random, node.stream());
  for (int64_t r = 0; r < R; ++r) {
    const int64_t row = node.view()->first_row + r;
    for (int64_t c = 0; c < C; ++c) {
      const galley_philox_block words = galley_random_block(key, random[2] + row / S, row % S, c / 4);
      y[r * C + c] = static_cast<Real>(static_cast<double>(x[r * C + c]) + size * (2.0 * galley_uniform(words.word[c % 4]) - 1));
    }
  }
}

void infer(const Node& node, Shapes& out) {
  if (node.in(0).dtype != GALLEY_F32 && node.in(0).dtype != GALLEY_F64) invalid(std::string(node.name()) + ": x has to be F32");
  out.like(0, node.in(0));
}
void gradient(Backward& b) {
  if (b.needs(0)) b.d_inputs[0] = b.d_outputs[0];  // dx = dy
}
void reference(const Node& node) { add_noise<double>(node); }
void run(const Node& node, void*) { add_noise<float>(node); }
bool supports(const Node& node) { return node.in(0).dtype == GALLEY_F32 && !node.accumulates(0); }

Op op("neftune_noise", "y = x + alpha / sqrt(S · C) · U(-1, 1); x (…, C), random I64 (4)");
const bool op_added = add(op.input("x", GALLEY_ROLE_ROWS)
                              .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                              .output("y", GALLEY_ROLE_ROWS)
                              .flags(GALLEY_OP_RANDOM | GALLEY_OP_TRAINING_ONLY | GALLEY_OP_FULL)
                              .number("alpha", 5, "how large the noise is")
                              .infer<infer>()
                              .gradient<gradient>()
                              .reference<reference>()
                              .test("small", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_I64, {4}, 0, 1000}}, {}, 3)
                              .test("odd", {{GALLEY_F32, {4, 9, 67}}, {GALLEY_I64, {4}, 0, 1000000}}, Attrs().f("alpha", 15), 9)
                              .test("evaluation", {{GALLEY_F32, {3, 40}}, {GALLEY_I64, {4}, 0, 1000}}, {}, 3, 0));
const bool kernel_added = add(kernel<run, supports>("neftune_noise.cpu", "neftune_noise"));

class Neftune {
 public:
  explicit Neftune(const Options& options) { attrs_.f("alpha", options.number("alpha")); }

  void model(ModelGraph& graph) const {
    const galley_tensor ids = graph.input("input_ids");
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = graph.node(n);
      if (!galley_same_text(node.op, "embedding") || (node.inputs[0] != ids && node.inputs[1] != ids)) continue;
      const galley_tensor x = node.outputs[0];
      graph.replace(x, graph.node("neftune_noise", "neftune", {x, graph.scalar(GALLEY_SCALAR_RANDOM)}, attrs_)[0]);
      return;
    }
    invalid("the model looks up no embeddings of tokens");
  }

 private:
  Attrs attrs_;
};

const bool added = add(strategy<Neftune>("neftune"));

}  // namespace

GALLEY_PLUGIN("neftune", "1.0.0");
