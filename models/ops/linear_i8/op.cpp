// Linear layers whose operands are integers of 8 bits, with a scale for each row of x and for each output:
//
//     y[r, n] = x_scale[r] · w_scale[n] · Σ_k x[r, k] · w[n, k] + bias[n]
//
// x (…, K) and W (N, K) in I8, x_scale (rows of x) and w_scale (N) in F32, bias (N), y (…, N). Sums are exact, in I32. This is the product
// of vector-wise quantization in Dettmers, Lewis, Belkada, Zettlemoyer: "LLM.int8()" (arXiv:2208.07339), section 3.1, with scales that
// already hold the 1/127 of both sides. How numbers become codes, what is left out of them and what the gradient is, is for strategies to
// say.
#include "ops/check.hpp"

namespace galley::models::linear_i8_op {
namespace {

using namespace sdk;

constexpr int64_t kMostTerms = INT32_MAX / (128 * 128);  // of a sum in I32

void shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "x");
  const galley_operand &x = n.in(0), &w = n.in(1);
  for (uint32_t i : {0u, 1u})
    if (n.in(i).dtype != GALLEY_I8) wrong(n, std::string(i ? "w" : "x") + " has to be I8");
  if (w.rank != 2 || w.shape[1] != columns(x))
    wrong(n, "w is " + shape_text(w) + "; beside x " + shape_text(x) + " it has to be (outputs, " + std::to_string(columns(x)) + ")");
  if (columns(x) > kMostTerms)
    wrong(n, "sums of " + std::to_string(columns(x)) + " products do not fit into I32; " + std::to_string(kMostTerms) + " do");
  one_a_row(n, 2, "x_scale", 0, "x");
  vector_of(n, 3, "w_scale", w.shape[0]);
  in_f32(n, 2, "x_scale");
  in_f32(n, 3, "w_scale");
  vector_of(n, 4, "bias", w.shape[0]);
  numbers(n, 4, "bias");
  galley_operand y = x;
  y.dtype = n.dtype(GALLEY_F32);
  out.like(0, y, w.shape[0]);
}

void reference(const Node& n) {
  const int8_t *x = n.read<int8_t>(0), *w = n.read<int8_t>(1);
  const double *x_scale = n.read<double>(2), *w_scale = n.read<double>(3), *bias = n.read<double>(4);
  double* y = n.write<double>(0);
  const int64_t R = rows(n.in(0)), K = columns(n.in(0)), N = columns(n.out(0));
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; j < N; ++j) {
      int64_t sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += x[r * K + k] * w[j * K + k];
      y[r * N + j] = x_scale[r] * w_scale[j] * static_cast<double>(sum) + (bias ? bias[j] : 0);
    }
}

void cost(const Node& n, galley_cost& out) {
  out.flops = 2.0 * static_cast<double>(count(n.out(0))) * static_cast<double>(columns(n.in(0)));
}

constexpr uint32_t I = GALLEY_I8, F = GALLEY_F32;
constexpr uint32_t constant = GALLEY_OPERAND_NO_GRADIENT;

Op linear_i8("linear_i8",
             "y = x_scale·w_scale·(x·Wᵀ) + b, summed in I32; x (…, K), W (N, K) I8, x_scale (rows), w_scale (N) F32, b (N), y (…, N)");
const bool added =
    add(linear_i8.input("x", GALLEY_ROLE_ROWS, constant)
            .input("w", GALLEY_ROLE_WHOLE, constant)
            .input("x_scale", GALLEY_ROLE_ROWS, constant | GALLEY_OPERAND_SAME_ROWS)
            .input("w_scale", GALLEY_ROLE_WHOLE, constant)
            .input("bias", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_ANY_DTYPE)
            .output("y", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE)
            .infer<shape>()
            .cost<cost>()
            .reference<reference>()
            .test("small", {{I, {2, 3, 5}, -128, 127}, {I, {7, 5}, -128, 127}, {F, {2, 3}}, {F, {7}}, {F, {7}}})
            .test("one", {{I, {1, 1}, -128, 127}, {I, {1, 1}, -128, 127}, {F, {1}}, {F, {1}}, {0, {}}})
            .test("odd", {{I, {129, 67}, -128, 127}, {I, {131, 67}, -128, 127}, {F, {129}}, {F, {131}}, {GALLEY_BF16, {131}}})
            .test("fours", {{I, {70, 68}, -128, 127}, {I, {132, 68}, -128, 127}, {F, {70}}, {F, {132}}, {F, {132}}})
            .test("deep", {{I, {9, 2052}, -128, 127}, {I, {72, 2052}, -128, 127}, {F, {9}}, {F, {72}}, {0, {}}})
            .test("extremes", {{I, {3, 1000}, -128, -128}, {I, {5, 1000}, -128, -128}, {F, {3}}, {F, {5}}, {0, {}}})
            .test("blocks of rows", {{I, {300, 40}, -128, 127}, {I, {72, 40}, -128, 127}, {F, {300}}, {F, {72}}, {0, {}}},
                  Attrs().s("dtype", "bf16"))
            .test("to f16", {{I, {33, 24}, -9, 9}, {I, {68, 24}, -9, 9}, {F, {33}}, {F, {68}}, {F, {68}}}, Attrs().s("dtype", "f16")));

}  // namespace
}  // namespace galley::models::linear_i8_op
