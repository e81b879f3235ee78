// PiSSA (Meng et al., "PiSSA: Principal singular values and singular vectors adaptation of large language models", 2024, arXiv:2404.02948).
// For tests, built outside the tree: an adapter whose first value is made from the weight that it stands beside. Of W = U S Vᵀ (out, in),
// with the largest singular values first,
//   B = U[:, :r] √S[:r],  A = √S[:r] V[:, :r]ᵀ,  W begins as W − B A,
// and B A x is added to what the layer makes. What is saved is the model with W + B A.
#include <galley/cpp/strategy.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace {

using namespace galley::sdk;

// ---- The principal part of a matrix ----------------------------------------------------------------------------------------------

void infer_principal(const Node& node, Shapes& out) {
  const galley_operand& w = node.in(0);
  const int64_t rank = node.i("rank", 0);
  if (w.rank != 2 || rank < 1 || rank > std::min(w.shape[0], w.shape[1]))
    invalid(std::string(node.name()) + ": rank " + std::to_string(rank) + " of " + shape_text(w));
  out.set(0, GALLEY_F32, {w.shape[0], rank});
  out.set(1, GALLEY_F32, {rank, w.shape[1]});
}

/// One-sided Jacobi rotations: the columns of `u` (a copy of W, or of its transpose where that is tall) become orthogonal.
template <class Real>
void principal(const Node& node) {
  const galley_operand& w = node.in(0);
  const int64_t rank = node.i("rank", 0), out = w.shape[0], in = w.shape[1];
  const bool wide = in > out;  // then of the transpose
  const int64_t m = wide ? in : out, n = wide ? out : in;
  const Real* numbers = node.read<Real>(0);
  std::vector<double> u(static_cast<size_t>(m * n)), v(static_cast<size_t>(n * n), 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      u[static_cast<size_t>(j * m + i)] = static_cast<double>(wide ? numbers[j * in + i] : numbers[i * in + j]);
  for (int64_t j = 0; j < n; ++j) v[static_cast<size_t>(j * n + j)] = 1;
  const auto rotate = [](double* a, double* b, int64_t count, double c, double s) {
    for (int64_t i = 0; i < count; ++i) {
      const double x = a[i], y = b[i];
      a[i] = c * x - s * y;
      b[i] = s * x + c * y;
    }
  };
  for (int sweep = 0; sweep < 60; ++sweep) {
    double largest = 0;
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        double *a = u.data() + p * m, *b = u.data() + q * m;
        double aa = 0, bb = 0, ab = 0;
        for (int64_t i = 0; i < m; ++i) aa += a[i] * a[i], bb += b[i] * b[i], ab += a[i] * b[i];
        if (ab == 0 || std::abs(ab) < 1e-15 * std::sqrt(aa * bb)) continue;
        largest = std::max(largest, std::abs(ab) / std::sqrt(aa * bb));
        const double zeta = (bb - aa) / (2 * ab), t = (zeta < 0 ? -1 : 1) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        const double c = 1 / std::sqrt(1 + t * t), s = c * t;
        rotate(a, b, m, c, s);
        rotate(v.data() + p * n, v.data() + q * n, n, c, s);
      }
    if (largest < 1e-12) break;
  }
  std::vector<double> singular(static_cast<size_t>(n));
  for (int64_t j = 0; j < n; ++j)
    singular[static_cast<size_t>(j)] = std::sqrt(std::inner_product(&u[j * m], &u[j * m] + m, &u[j * m], 0.0));
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return singular[a] > singular[b]; });
  Real *B = node.write<Real>(0), *A = node.write<Real>(1);
  for (int64_t k = 0; k < rank; ++k) {
    const int64_t j = order[k];
    const double root = std::sqrt(singular[j]),
                 largest = *std::max_element(&v[j * n], &v[j * n] + n, [](double a, double b) { return std::abs(a) < std::abs(b); });
    const double of_u = (largest < 0 ? -1 : 1) * (root > 0 ? 1 / root : 0), of_v = (largest < 0 ? -1 : 1) * root;  // one sign of the two
    for (int64_t i = 0; i < out; ++i) B[i * rank + k] = static_cast<Real>(wide ? of_v * v[j * n + i] : of_u * u[j * m + i]);
    for (int64_t i = 0; i < in; ++i) A[k * in + i] = static_cast<Real>(wide ? of_u * u[j * m + i] : of_v * v[j * n + i]);
  }
}
void run_principal(const Node& node, void*) { principal<float>(node); }
void reference_principal(const Node& node) { principal<double>(node); }

Op principal_op("pissa_principal", "B, A: the first `rank` singular values and vectors of W, as B·A");
const bool principal_added = add(principal_op.input("w", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                                     .output("b", GALLEY_ROLE_WHOLE)
                                     .output("a", GALLEY_ROLE_WHOLE)
                                     .attr("rank", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "how many singular values")
                                     .infer<infer_principal>()
                                     .reference<reference_principal>()) &&
                             add(kernel<run_principal>("pissa_principal.cpu", "pissa_principal"));

// ---- The strategy ------------------------------------------------------------------------------------------------------------------

class Pissa {
 public:
  explicit Pissa(const Options& options) : rank_(options.integer("rank")) {}

  void claim(const GraphReader&, const Claims& claims) const {
    if (!claims.about(GALLEY_FACET_TRAINABLE)) return;
    for (const Claim& parameter : claims) galley_same_text(parameter.owner, "pissa") ? parameter.strong(1) : parameter.weak(0);
  }

  void model(ModelGraph& graph) const {
    each(graph, [&](const galley_node_info& node) { adapt(graph, node.inputs[0], node.inputs[1], node.outputs[0]); });
  }
  void load(LoadGraph& graph) const {
    each(graph, [&](const galley_node_info& node) { split(graph, node.inputs[1]); });
  }
  void save(ExportGraph& graph) const {
    graph.export_model(GALLEY_EXPORT_MODEL);
    each(graph, [&](const galley_node_info& node) {
      const galley_tensor w = node.inputs[1];
      graph.export_as(w, sum(graph, w, graph.find(name(graph, w) + ".B"), graph.find(name(graph, w) + ".A"), 1));
    });
  }

 private:
  /// The linear layers of the model's blocks, but for those of other adapters, which are smaller than the rank.
  template <class Do>
  void each(Graph& graph, const Do& with) const {
    for (galley_node n = graph.next_node(0, GALLEY_NODES_MODEL); n; n = graph.next_node(n, GALLEY_NODES_MODEL)) {
      const galley_node_info node = graph.node(n);
      if (!(node.op_flags & GALLEY_OP_LINEAR) || node.block < 0 || std::string(node.name).find(".pissa") != std::string::npos) continue;
      if (const galley_tensor_info w = graph.info(node.inputs[1]); std::min(w.shape[0], w.shape[1]) < rank_) continue;
      with(node);
    }
  }
  static std::string name(const GraphReader& graph, galley_tensor w) { return "pissa." + std::string(graph.info(w).name); }

  void adapt(ModelGraph& graph, galley_tensor x, galley_tensor w, galley_tensor y) const {
    const galley_tensor_info info = graph.info(w);
    const std::string own = name(graph, w);
    const char* file = "adapter/pissa.safetensors";
    const galley_tensor a = graph.parameter(own + ".A", {rank_, info.shape[1]}, file),
                        b = graph.parameter(own + ".B", {info.shape[0], rank_}, file);
    const galley_tensor ax = graph.node("linear", (own + ".pissa_a").c_str(), {x, a})[0];
    const galley_tensor bax = graph.node("linear", (own + ".pissa_b").c_str(), {ax, b})[0];
    graph.replace(y, graph.node("add", (own + ".pissa").c_str(), {y, bax}, Attrs().f("alpha", 1))[0]);
  }

  /// W + alpha · B·A.
  static galley_tensor sum(Graph& graph, galley_tensor w, galley_tensor b, galley_tensor a, double alpha) {
    const galley_tensor product = graph.node("linear", nullptr, {b, a}, Attrs().i("transposed", 1))[0];
    return graph.node("add", nullptr, {w, product}, Attrs().f("alpha", alpha))[0];
  }

  void split(LoadGraph& graph, galley_tensor w) const {
    const std::vector<galley_tensor> parts = graph.node("pissa_principal", nullptr, {w}, Attrs().i("rank", rank_), {0, 0});
    graph.begin_as(graph.find(name(graph, w) + ".B"), parts[0]);
    graph.begin_as(graph.find(name(graph, w) + ".A"), parts[1]);
    graph.begin_as(w, sum(graph, w, parts[0], parts[1], -1));
  }

  int64_t rank_;
};
const bool strategy_added = add(strategy<Pissa>("pissa"));

}  // namespace

GALLEY_PLUGIN("pissa", "1.0.0");
