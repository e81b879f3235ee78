// Factors of columns, and those of DoRA (Liu et al. 2024, "DoRA: Weight-decomposed low-rank adaptation", arXiv:2402.09353). Of a weight W
// (N, K), or where `transposed` (K, N), and an adapter A (rank, K), B (N, rank) with a magnitude m (N):
//
//   n = ‖W + scale · B·A‖ of each output's row          dora_norm, once a window: the paper takes it for a constant, so no gradient
//   y = m / n ∘ x + bias, x = W·h + scale · B·A·h       scale_columns; without n, what VeRA and (IA)³ multiply by
//   dx = m / n ∘ dy                                     scale_columns as well
//   dm = Σ dy ∘ x / n                                   scale_columns_dw
#include <cmath>
#include <vector>

#include "galley/cpp/plugin.hpp"

namespace {

using namespace galley::sdk;

[[noreturn]] void wrong(const Node& node, const std::string& what) {
  invalid(std::string(node.name()) + ": " + node.view()->op + ": " + what);
}

bool is_number(uint32_t dtype) { return dtype == GALLEY_F32 || dtype == GALLEY_BF16 || dtype == GALLEY_F16; }

void in_f32(const Node& node, uint32_t i, const char* name) {
  if (node.has(i) && node.in(i).dtype != GALLEY_F32) wrong(node, std::string(name) + " has to be F32");
}

// ---- dora_norm ---------------------------------------------------------------------------------------------------------------------

void norm_shape(const Node& node, Shapes& out) {
  const galley_operand &w = node.in(0), &a = node.in(1), &b = node.in(2);
  const bool transposed = node.i("transposed", 0) != 0;
  in_f32(node, 1, "a");
  in_f32(node, 2, "b");
  if (w.rank != 2 || a.rank != 2 || b.rank != 2 || !is_number(w.dtype))
    wrong(node, "w is " + shape_text(w) + ", a " + shape_text(a) + " and b " + shape_text(b) + "; they have to be matrices of numbers");
  const int64_t n = w.shape[transposed ? 1 : 0], k = w.shape[transposed ? 0 : 1];
  if (a.shape[1] != k || b.shape[0] != n || a.shape[0] != b.shape[1])
    wrong(node, "a is " + shape_text(a) + " and b " + shape_text(b) + "; beside w " + shape_text(w) + " they have to be (rank, " +
                    std::to_string(k) + ") and (" + std::to_string(n) + ", rank)");
  out.set(0, GALLEY_F32, {n});
}

void norm_reference(const Node& node) {
  const bool transposed = node.i("transposed", 0) != 0;
  const double scale = node.f("scale", 1), *w = node.read<double>(0), *a = node.read<double>(1), *b = node.read<double>(2);
  const int64_t rank = node.in(1).shape[0], K = node.in(1).shape[1], N = node.in(2).shape[0];
  std::vector<double> row(static_cast<size_t>(K));
  for (int64_t n = 0; n < N; ++n) {
    for (int64_t k = 0; k < K; ++k) row[static_cast<size_t>(k)] = w[transposed ? k * N + n : n * K + k];
    for (int64_t r = 0; r < rank; ++r)
      for (int64_t k = 0; k < K; ++k) row[static_cast<size_t>(k)] += scale * b[n * rank + r] * a[r * K + k];
    double sum = 0;
    for (const double x : row) sum += x * x;
    node.write<double>(0)[n] = std::sqrt(sum);
  }
}

void norm_cost(const Node& node, galley_cost& out) {
  out.flops = 2.0 * static_cast<double>(count(node.in(0))) * static_cast<double>(node.in(1).shape[0]);
}

constexpr uint32_t F = GALLEY_F32, B = GALLEY_BF16, H = GALLEY_F16;
constexpr uint64_t any = GALLEY_OPERAND_ANY_DTYPE, none = GALLEY_OPERAND_NO_GRADIENT;

Op dora_norm("dora_norm", "n = ‖W + scale · B·A‖ by rows; W (N, K) or transposed (K, N), A (rank, K), B (N, rank), n (N)");
const bool norm_added = add(dora_norm.flags(GALLEY_OP_PRIVATE)
                                .input("w", GALLEY_ROLE_WHOLE, none | any)
                                .input("a", GALLEY_ROLE_WHOLE, none)
                                .input("b", GALLEY_ROLE_WHOLE, none)
                                .output("n", GALLEY_ROLE_WHOLE)
                                .number("scale", 1, "of B·A")
                                .integer("transposed", 0, "1: the weight is (K, N)")
                                .infer<norm_shape>()
                                .cost<norm_cost>()
                                .reference<norm_reference>()
                                .test("small", {{F, {7, 5}}, {F, {2, 5}}, {F, {7, 2}}}, Attrs().f("scale", 0.5))
                                .test("small transposed", {{F, {5, 7}}, {F, {2, 5}}, {F, {7, 2}}}, Attrs().f("scale", 2).i("transposed", 1))
                                .test("one", {{F, {1, 1}}, {F, {1, 1}}, {F, {1, 1}}})
                                .test("odd", {{F, {131, 1031}}, {F, {3, 1031}}, {F, {131, 3}}}, Attrs().f("scale", 0.25))
                                .test("odd transposed", {{F, {1031, 131}}, {F, {3, 1031}}, {F, {131, 3}}}, Attrs().i("transposed", 1))
                                .test("wide transposed", {{F, {33, 1300}}, {F, {9, 33}}, {F, {1300, 9}}}, Attrs().i("transposed", 1))
                                .test("rank 16", {{F, {37, 640}}, {F, {16, 640}}, {F, {37, 16}}})
                                .test("bf16", {{B, {37, 671}}, {F, {4, 671}}, {F, {37, 4}}}, Attrs().f("scale", 0.5))
                                .test("f16 transposed", {{H, {67, 133}}, {F, {4, 67}}, {F, {133, 4}}}, Attrs().i("transposed", 1)));

// ---- scale_columns -----------------------------------------------------------------------------------------------------------------

void factor_of(const Node& node, uint32_t i, const char* name, int64_t n) {
  if (node.has(i) && node.in(i).dtype != GALLEY_F32 && std::string(name) != "bias") in_f32(node, i, name);
  if (node.has(i) && !is_number(node.in(i).dtype)) wrong(node, std::string(name) + " has to hold numbers");
  if (node.has(i) && count(node.in(i)) != n)
    wrong(node, std::string(name) + " is " + shape_text(node.in(i)) + "; it has to have " + std::to_string(n) + " numbers");
}

void scale_shape(const Node& node, Shapes& out) {
  const galley_operand& x = node.in(0);
  if (x.rank == 0 || !is_number(x.dtype)) wrong(node, "x has to be rows of numbers");
  factor_of(node, 1, "w", columns(x));
  factor_of(node, 2, "norm", columns(x));
  factor_of(node, 3, "bias", columns(x));
  out.set(0, node.dtype(x.dtype), x.shape, x.rank);
}

void scale_reference(const Node& node) {
  const int64_t N = columns(node.in(0));
  const double *w = node.read<double>(1), *norm = node.read<double>(2), *bias = node.read<double>(3);
  for (int64_t i = 0; i < count(node.in(0)); ++i)
    node.write<double>(0)[i] = w[i % N] / (norm ? norm[i % N] : 1) * node.read<double>(0)[i] + (bias ? bias[i % N] : 0);
}

void scale_gradient(Backward& b) {
  const galley_tensor x = b.node.inputs[0], w = b.node.inputs[1], norm = b.node.n_inputs > 2 ? b.node.inputs[2] : 0, dy = b.d_outputs[0];
  const std::string name = b.node.name;
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("scale_columns", (name + ".dx").c_str(), {dy, w, norm}, {}, {b.d_inputs[0]}, {b.adds(0)})[0];
  if (b.needs(1))
    b.d_inputs[1] = b.graph.node("scale_columns_dw", (name + ".dw").c_str(), {dy, x, w, norm}, {}, {b.d_inputs[1]}, {b.adds(1)})[0];
  if (b.needs(3)) b.d_inputs[3] = b.graph.node("sum_rows", (name + ".db").c_str(), {dy}, {}, {b.d_inputs[3]}, {b.adds(3)})[0];
}

constexpr uint64_t optional = GALLEY_OPERAND_OPTIONAL;

Op scale_columns("scale_columns", "y = w / norm ∘ x + bias; x (…, N), w, norm and bias have N numbers");
const bool scale_added = add(scale_columns.input("x", GALLEY_ROLE_ROWS, GALLEY_OPERAND_COMPUTE)
                                 .input("w", GALLEY_ROLE_WHOLE)
                                 .input("norm", GALLEY_ROLE_WHOLE, none | optional)
                                 .input("bias", GALLEY_ROLE_WHOLE, optional | any)
                                 .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any, 0)
                                 .infer<scale_shape>()
                                 .gradient<scale_gradient>()
                                 .reference<scale_reference>()
                                 .test("small", {{F, {2, 3, 5}}, {F, {5}}, {F, {5}, 0.5, 2}, {F, {5}}})
                                 .test("a row", {{F, {37, 67}}, {F, {1, 67}}, {0, {}}, {0, {}}})
                                 .test("a column", {{F, {37, 67}}, {F, {67, 1}}, {0, {}}, {F, {67}}})
                                 .test("without bias", {{F, {37, 67}}, {F, {67}}, {F, {67}, 0.5, 2}, {0, {}}})
                                 .test("large", {{F, {5, 13, 1031}}, {F, {1031}}, {F, {1031}, 0.5, 2}, {F, {1031}}})
                                 .test("bf16", {{B, {37, 671}}, {F, {671}}, {F, {671}, 0.5, 2}, {B, {671}}})
                                 .test("f16", {{H, {37, 64}}, {F, {64}}, {F, {64}, 0.5, 2}, {F, {64}}})
                                 .test("bf16 to f32", {{B, {37, 64}}, {F, {64}}, {0, {}}, {0, {}}}, Attrs().s("dtype", "f32")));

void dw_shape(const Node& node, Shapes& out) {
  const galley_operand &dy = node.in(0), &x = node.in(1);
  if (dy.rank == 0 || x.rank == 0 || rows(dy) != rows(x) || columns(dy) != columns(x) || !is_number(dy.dtype) || !is_number(x.dtype))
    wrong(node, "dy is " + shape_text(dy) + ", but x is " + shape_text(x));
  factor_of(node, 2, "w", columns(x));
  factor_of(node, 3, "norm", columns(x));
  out.set(0, GALLEY_F32, node.in(2).shape, node.in(2).rank);
}

void dw_reference(const Node& node) {
  const int64_t N = columns(node.in(0)), R = rows(node.in(0));
  const double *dy = node.read<double>(0), *x = node.read<double>(1), *norm = node.read<double>(3);
  for (int64_t n = 0; n < N; ++n) {
    double sum = 0;
    for (int64_t r = 0; r < R; ++r) sum += dy[r * N + n] * x[r * N + n];
    node.write<double>(0)[n] = sum / (norm ? norm[n] : 1);
  }
}

Op scale_columns_dw("scale_columns_dw", "dw = Σ dy ∘ x / norm, of the shape of w; dy, x (…, N), w and norm have N numbers");
const bool dw_added = add(scale_columns_dw.input("dy", GALLEY_ROLE_ROWS, any)
                              .input("x", GALLEY_ROLE_ROWS, any)
                              .input("w", GALLEY_ROLE_WHOLE)
                              .input("norm", GALLEY_ROLE_WHOLE, optional)
                              .output("dw", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES)
                              .infer<dw_shape>()
                              .reference<dw_reference>()
                              .test("small", {{F, {2, 3, 5}}, {F, {2, 3, 5}}, {F, {5}}, {F, {5}, 0.5, 2}})
                              .test("one row", {{F, {1, 33}}, {F, {1, 33}}, {F, {1, 33}}, {0, {}}})
                              .test("pieces", {{F, {1031, 35}}, {F, {1031, 35}}, {F, {35, 1}}, {F, {35}, 0.5, 2}})
                              .test("wide", {{F, {67, 2100}}, {F, {67, 2100}}, {F, {2100}}, {F, {2100}, 0.5, 2}})
                              .test("bf16", {{B, {131, 67}}, {B, {131, 67}}, {F, {67}}, {F, {67}, 0.5, 2}})
                              .test("f16", {{H, {600, 33}}, {F, {600, 33}}, {F, {33}}, {0, {}}}));

}  // namespace
