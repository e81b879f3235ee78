// Linear layers: y = α·x·Wᵀ + b, and their two backward products dx = α·dy·W and dW = α·dyᵀ·x; db is the op sum_rows. α is the attribute
// `alpha`, of an adapter's scaling; it is 1 for the rest.
//
// x (…, K), W (N, K) as PyTorch's Linear stores it, or (K, N) with the attribute `transposed` as GPT-2's Conv1D does, b (N), y (…, N). A
// frozen weight gets no dW and a frozen prefix no dx: each is a node of its own.
#include <algorithm>
#include <vector>

#include "ops/check.hpp"

namespace galley::models::linear_op {
namespace {

using namespace sdk;

struct Extents {
  int64_t n, k;  // of the weight: outputs and inputs
};

bool transposed(const Node& n) { return n.i("transposed", 0) != 0; }
double alpha(const Node& n) { return n.f("alpha", 1); }

struct Matrix {
  const double* data;
  int64_t row, column;  // how far apart these are
  double at(int64_t i, int64_t j) const { return data[i * row + j * column]; }
};

/// C (m × n, row by row) += α · A (m × depth) · B (depth × n), each sum in the order of its terms, as the plain loops would make it. Both
/// are copied in blocks that stay in cache, and 16 sums run side by side: references of wide models are made of little else.
void add_product(int64_t m, int64_t n, int64_t depth, double alpha, Matrix a, Matrix b, double* c) {
  constexpr int64_t rows_at_once = 64, terms_at_once = 256, side_by_side = 16;
  std::vector<double> of_a(rows_at_once * terms_at_once), of_b(terms_at_once * side_by_side);
  for (int64_t i0 = 0; i0 < m; i0 += rows_at_once)
    for (int64_t k0 = 0; k0 < depth; k0 += terms_at_once) {
      const int64_t i1 = std::min(m, i0 + rows_at_once), terms = std::min(depth - k0, terms_at_once);
      for (int64_t i = i0; i < i1; ++i)
        for (int64_t k = 0; k < terms; ++k) of_a[static_cast<size_t>((i - i0) * terms + k)] = alpha * a.at(i, k0 + k);
      for (int64_t j0 = 0; j0 < n; j0 += side_by_side) {
        const int64_t columns = std::min(n - j0, side_by_side);
        for (int64_t k = 0; k < terms; ++k)
          for (int64_t j = 0; j < columns; ++j) of_b[static_cast<size_t>(k * side_by_side + j)] = b.at(k0 + k, j0 + j);
        for (int64_t i = i0; i < i1; ++i) {
          double sums[side_by_side] = {};
          std::copy_n(c + i * n + j0, columns, sums);
          const double *x = of_a.data() + (i - i0) * terms, *y = of_b.data();
          for (int64_t k = 0; k < terms; ++k, y += side_by_side)
            for (int64_t j = 0; j < side_by_side; ++j) sums[j] += x[k] * y[j];
          std::copy_n(sums, columns, c + i * n + j0);
        }
      }
    }
}

/// Wᵀ (K × N), as it is stored.
Matrix weight_of(const Node& n, const Extents& e) {
  const double* w = n.read<double>(1);
  return transposed(n) ? Matrix{w, e.n, 1} : Matrix{w, 1, e.k};
}

const char* layout(const Node& n) { return transposed(n) ? " (transposed: K × N)" : " (N × K)"; }

Extents weight(const Node& n) {
  const galley_operand& w = n.in(1);
  if (w.rank != 2) wrong(n, "w is " + shape_text(w) + "; it has to be a matrix" + layout(n));
  return transposed(n) ? Extents{w.shape[1], w.shape[0]} : Extents{w.shape[0], w.shape[1]};
}

// ---- y ----

void shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "x");
  const Extents w = weight(n);
  if (columns(n.in(0)) != w.k)
    wrong(n, "x " + shape_text(n.in(0)) + " has rows of " + std::to_string(columns(n.in(0))) + ", but w " + shape_text(n.in(1)) +
                 layout(n) + " takes " + std::to_string(w.k));
  vector_of(n, 2, "bias", w.n);
  one_dtype(n, 0, "x", 1, "w");
  numbers(n, 2, "bias");
  like_in_dtype(out, 0, n, n.in(0), w.n);
}

void reference(const Node& n) {
  const double* b = n.read<double>(2);
  double* y = n.write<double>(0);
  const Extents e = weight(n);
  const int64_t R = rows(n.in(0));
  for (int64_t i = 0; i < R * e.n; ++i) y[i] = b ? b[i % e.n] : 0;
  add_product(R, e.n, e.k, alpha(n), {n.read<double>(0), e.k, 1}, weight_of(n, e), y);
}

void gradient(Backward& b) {
  const galley_tensor x = b.node.inputs[0], w = b.node.inputs[1], dy = b.d_outputs[0];
  const std::string name = b.node.name;
  Attrs attrs;
  for (const char* key : {"transposed", "alpha"})
    if (const galley_attr* a = b.attr(key)) attrs.copy(*a);
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("linear_dx", (name + ".dx").c_str(), {dy, w}, attrs, {b.d_inputs[0]}, {b.adds(0)})[0];
  if (b.needs(1)) b.d_inputs[1] = b.graph.node("linear_dw", (name + ".dw").c_str(), {dy, x}, attrs, {b.d_inputs[1]}, {b.adds(1)})[0];
  if (b.needs(2)) b.d_inputs[2] = b.graph.node("sum_rows", (name + ".db").c_str(), {dy}, {}, {b.d_inputs[2]}, {b.adds(2)})[0];
}

void cost(const Node& n, galley_cost& out) {
  const Extents w = weight(n);
  out.flops = 2.0 * static_cast<double>(rows(n.in(0))) * static_cast<double>(w.n) * static_cast<double>(w.k);
}

// ---- dx: dy (…, N), W ----

void dx_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "dy");
  const Extents w = weight(n);
  if (columns(n.in(0)) != w.n)
    wrong(n, "dy " + shape_text(n.in(0)) + " has rows of " + std::to_string(columns(n.in(0))) + ", but w " + shape_text(n.in(1)) +
                 layout(n) + " makes " + std::to_string(w.n));
  one_dtype(n, 0, "dy", 1, "w");
  like_in_dtype(out, 0, n, n.in(0), w.k);
}

void dx_reference(const Node& n) {
  double* dx = n.write<double>(0);
  const Extents e = weight(n);
  const int64_t R = rows(n.in(0));
  const Matrix w = weight_of(n, e);
  std::fill_n(dx, R * e.k, 0.0);
  add_product(R, e.k, e.n, alpha(n), {n.read<double>(0), e.n, 1}, {w.data, w.column, w.row}, dx);
}

// ---- dW: dy (…, N), x (…, K) ----

void dw_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "dy");
  has_rows(n, 1, "x");
  if (rows(n.in(0)) != rows(n.in(1)))
    wrong(n, "dy is " + shape_text(n.in(0)) + ", but x is " + shape_text(n.in(1)) + "; their rows have to be as many");
  one_dtype(n, 0, "dy", 1, "x");
  const int64_t N = columns(n.in(0)), K = columns(n.in(1));
  if (transposed(n)) out.set(0, n.dtype(GALLEY_F32), {K, N});
  else out.set(0, n.dtype(GALLEY_F32), {N, K});
}

void dw_reference(const Node& n) {
  const int64_t N = columns(n.in(0)), K = columns(n.in(1)), R = rows(n.in(0));
  const double *dy = n.read<double>(0), *x = n.read<double>(1);
  double* dw = n.write<double>(0);
  std::fill_n(dw, N * K, 0.0);
  if (transposed(n)) add_product(K, N, R, alpha(n), {x, 1, K}, {dy, N, 1}, dw);
  else add_product(N, K, R, alpha(n), {dy, 1, N}, {x, K, 1}, dw);
}

void dw_cost(const Node& n, galley_cost& out) {
  out.flops = 2.0 * static_cast<double>(rows(n.in(0))) * static_cast<double>(columns(n.in(0))) * static_cast<double>(columns(n.in(1)));
}

// ---- Tables ----

constexpr uint64_t F = GALLEY_F32, B = GALLEY_BF16, H = GALLEY_F16, compute = GALLEY_OPERAND_COMPUTE, any = GALLEY_OPERAND_ANY_DTYPE;

// Shapes that no block divides, all ways to cut a product (cpu.cpp), and more rows than a piece of dW takes.
Op linear("linear", "y = alpha·x·Wᵀ + b; x (…, K), W (N, K) or transposed (K, N), b (N), y (…, N)");
const bool linear_added =
    add(linear.input("x", GALLEY_ROLE_ROWS, compute)
            .input("w", GALLEY_ROLE_WHOLE, compute)
            .input("bias", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | any)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any)
            .flags(GALLEY_OP_LINEAR | GALLEY_OP_LOW)
            .integer("transposed", 0, "1: the weight is (K, N)")
            .number("alpha", 1, "what the product is multiplied by")
            .infer<shape>()
            .gradient<gradient>()
            .cost<cost>()
            .reference<reference>()
            .test("small", {{F, {2, 3, 5}}, {F, {7, 5}}, {F, {7}}})
            .test("small transposed", {{F, {2, 3, 5}}, {F, {5, 7}}, {F, {7}}}, Attrs().i("transposed", 1))
            .test("multiple", {{F, {9, 1030}}, {F, {70, 1030}}, {F, {70}}}, Attrs().f("alpha", 0.75))
            .test("one", {{F, {1, 1}}, {F, {1, 1}}, {0, {}}})
            .test("vector", {{F, {33}}, {F, {17, 33}}, {0, {}}})
            .test("odd", {{F, {129, 67}}, {F, {131, 67}}, {F, {131}}})
            .test("odd transposed", {{F, {65, 1031}}, {F, {1031, 19}}, {0, {}}}, Attrs().i("transposed", 1))
            .test("deep", {{F, {9, 2050}}, {F, {70, 2050}}, {F, {70}}})
            .test("blocks of rows", {{F, {300, 40}}, {F, {70, 40}}, {F, {70}}})
            .test("blocks of both", {{F, {260, 9}}, {F, {9, 1100}}, {F, {1100}}}, Attrs().i("transposed", 1))
            .test("power of two", {{F, {20, 64}}, {F, {64, 512}}, {F, {512}}}, Attrs().i("transposed", 1))
            .test("bf16 small", {{B, {2, 3, 5}}, {B, {7, 5}}, {F, {7}}})
            .test("bf16 multiple", {{B, {129, 67}}, {B, {33, 67}}, {F, {33}}}, Attrs().f("alpha", 1.3))
            .test("bf16 one", {{B, {1, 1}}, {B, {1, 1}}, {0, {}}})
            .test("bf16 vector", {{B, {33}}, {B, {17, 33}}, {0, {}}})
            .test("bf16 odd", {{B, {129, 67}}, {B, {131, 67}}, {B, {131}}})
            .test("bf16 odd transposed", {{B, {65, 1031}}, {B, {1031, 19}}, {0, {}}}, Attrs().i("transposed", 1))
            .test("bf16 deep", {{B, {9, 2050}}, {B, {70, 2050}}, {F, {70}}})
            .test("bf16 blocks of rows", {{B, {300, 40}}, {B, {70, 40}}, {H, {70}}})
            .test("bf16 blocks of both", {{B, {260, 9}}, {B, {9, 1100}}, {F, {1100}}}, Attrs().i("transposed", 1))
            .test("bf16 to f32", {{B, {65, 130}}, {B, {600, 130}}, {F, {600}}}, Attrs().s("dtype", "f32"))
            .test("bf16 to f32 transposed", {{B, {300, 64}}, {B, {64, 512}}, {B, {512}}}, Attrs().i("transposed", 1).s("dtype", "f32"))
            .test("f16", {{H, {129, 67}}, {H, {131, 67}}, {F, {131}}})
            .test("f16 deep transposed", {{H, {33, 1031}}, {H, {1031, 70}}, {H, {70}}}, Attrs().i("transposed", 1))
            .test("f16 to f32", {{H, {65, 130}}, {H, {600, 130}}, {0, {}}}, Attrs().s("dtype", "f32"))
            .test("f32 to bf16", {{F, {129, 67}}, {F, {131, 67}}, {F, {131}}}, Attrs().s("dtype", "bf16")));

Op linear_dx("linear_dx", "dx = alpha·dy·W; dy (…, N), W (N, K) or transposed (K, N), dx (…, K)");
const bool dx_added = add(linear_dx.input("dy", GALLEY_ROLE_ROWS, compute)
                              .input("w", GALLEY_ROLE_WHOLE, compute)
                              .output("dx", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any)
                              .flags(GALLEY_OP_LOW)
                              .integer("transposed", 0, "1: the weight is (K, N)")
                              .number("alpha", 1, "what the product is multiplied by")
                              .infer<dx_shape>()
                              .cost<cost>()
                              .reference<dx_reference>()
                              .test("small", {{F, {2, 3, 7}}, {F, {7, 5}}})
                              .test("small transposed", {{F, {2, 3, 7}}, {F, {5, 7}}}, Attrs().i("transposed", 1))
                              .test("multiple", {{F, {300, 16}}, {F, {16, 140}}}, Attrs().f("alpha", 2))
                              .test("one", {{F, {1, 1}}, {F, {1, 1}}})
                              .test("odd", {{F, {70, 1029}}, {F, {1029, 67}}})
                              .test("blocks of rows", {{F, {300, 70}}, {F, {70, 40}}})
                              .test("odd transposed", {{F, {129, 131}}, {F, {67, 131}}}, Attrs().i("transposed", 1))
                              .test("bf16 multiple", {{B, {300, 16}}, {B, {140, 16}}}, Attrs().i("transposed", 1).f("alpha", 0.3))
                              .test("bf16 one", {{B, {1, 1}}, {B, {1, 1}}})
                              .test("bf16 odd", {{B, {70, 1029}}, {B, {1029, 67}}})
                              .test("bf16 blocks of rows", {{B, {300, 70}}, {B, {70, 40}}})
                              .test("bf16 odd transposed", {{B, {129, 131}}, {B, {67, 131}}}, Attrs().i("transposed", 1))
                              .test("bf16 to f32", {{B, {70, 600}}, {B, {600, 70}}}, Attrs().s("dtype", "f32"))
                              .test("f16", {{H, {129, 131}}, {H, {67, 131}}}, Attrs().i("transposed", 1))
                              .test("f32 to f16", {{F, {2, 3, 7}}, {F, {7, 5}}}, Attrs().s("dtype", "f16")));

Op linear_dw("linear_dw", "dW = alpha·dyᵀ·x; dy (…, N), x (…, K), dW (N, K) or transposed (K, N)");
const bool dw_added = add(linear_dw.input("dy", GALLEY_ROLE_ROWS, compute)
                              .input("x", GALLEY_ROLE_ROWS, compute)
                              .output("dw", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES | any)
                              .flags(GALLEY_OP_LOW)
                              .integer("transposed", 0, "1: the weight is (K, N)")
                              .number("alpha", 1, "what the product is multiplied by")
                              .infer<dw_shape>()
                              .cost<dw_cost>()
                              .reference<dw_reference>()
                              .test("small", {{F, {2, 3, 7}}, {F, {2, 3, 5}}})
                              .test("small transposed", {{F, {2, 3, 7}}, {F, {2, 3, 5}}}, Attrs().i("transposed", 1))
                              .test("multiple", {{F, {600, 16}}, {F, {600, 140}}}, Attrs().f("alpha", 0.7))
                              .test("one row", {{F, {1, 33}}, {F, {1, 17}}})
                              .test("odd", {{F, {131, 67}}, {F, {131, 129}}})
                              .test("blocks of rows", {{F, {600, 140}}, {F, {600, 33}}})
                              .test("pieces", {{F, {1031, 21}}, {F, {1031, 35}}}, Attrs().i("transposed", 1))
                              .test("long and narrow", {{F, {2100, 16}}, {F, {2100, 40}}})
                              .test("bf16 multiple", {{B, {131, 16}}, {B, {131, 140}}}, Attrs().f("alpha", 1.5))
                              .test("bf16 one row", {{B, {1, 33}}, {B, {1, 17}}})
                              .test("bf16 odd", {{B, {131, 67}}, {B, {131, 129}}})
                              .test("bf16 blocks of rows", {{B, {600, 140}}, {B, {600, 33}}})
                              .test("bf16 pieces", {{B, {1031, 21}}, {B, {1031, 35}}}, Attrs().i("transposed", 1))
                              .test("bf16 wide", {{B, {70, 300}}, {B, {70, 515}}})
                              .test("bf16 to bf16", {{B, {131, 267}}, {B, {131, 129}}}, Attrs().s("dtype", "bf16"))
                              .test("f16", {{H, {600, 140}}, {H, {600, 33}}})
                              .test("f16 to f16", {{H, {131, 67}}, {H, {131, 129}}}, Attrs().i("transposed", 1).s("dtype", "f16"))
                              .test("f32 to bf16", {{F, {131, 67}}, {F, {131, 129}}}, Attrs().s("dtype", "bf16")));

}  // namespace
}  // namespace galley::models::linear_op
