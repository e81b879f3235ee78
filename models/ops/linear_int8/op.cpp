// Linear layers whose products are made of integers of 8 bits, but for what does not fit into these: LLM.int8() (Dettmers, Lewis, Belkada,
// Zettlemoyer, "LLM.int8(): 8-bit matrix multiplication for transformers at scale", 2022, arXiv:2208.07339, equation 8).
//
//     y[r, n] = Σ_k x̂[r, k] · W[n, k] + bias[n]
//
// x̂ is x as its parts are multiplied. Of x in F16, a number of at least `threshold` in magnitude is an outlier, and so is its column: the
// numbers of such columns are multiplied as they are, not rounded. The others become codes of a row: x̂ = code · scale / 127, code =
// x · 127 / scale rounded to the nearest (galley/cpp/int8_rows.hpp). As in bitsandbytes, scale is the largest magnitude of the row's numbers
// below the threshold, also of those in outlier columns, which equation 8 leaves out. With threshold = 0 there are no outliers. A row with
// an infinite number or NaN among those that become codes has a scale that is one, and so has y.
//
// x (…, K), W (N, K), or (K, N) with the attribute `transposed`, bias (N), y (…, N). W is what it is, in whatever way it is stored. Where
// that is the format "int8-rows", kernels multiply codes by codes, and add up in I32: sums are exact. Of an outlier's column of W, too,
// they read the codes. (The paper keeps these columns of W in 16 bit; which they are is known at run time only, so all of W would have to
// be kept in 16 bit beside its codes.)
//
// Rows are not independent: one outlier takes its column out of the codes of all rows. So a micro-batch is a whole, and no role here says
// rows.
//
// Backward takes rounding for the identity: dx = dy·W.
#include <algorithm>
#include <vector>

#include "ops/check.hpp"
#include "ops/linear_int8/outlier.hpp"

namespace galley::models::linear_int8_op {
namespace {

using namespace sdk;

constexpr int64_t kMostTerms = INT32_MAX / (128 * 128);  // of a sum in I32

bool transposed(const Node& n) { return n.i("transposed", 0) != 0; }
int64_t outputs(const Node& n) { return n.in(1).shape[transposed(n) ? 1 : 0]; }

void shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "x");
  const galley_operand &x = n.in(0), &w = n.in(1);
  if (w.rank != 2) wrong(n, "w is " + shape_text(w) + "; it has to be a matrix");
  const int64_t K = w.shape[transposed(n) ? 0 : 1];
  if (columns(x) != K)
    wrong(n, "x " + shape_text(x) + " has rows of " + std::to_string(columns(x)) + ", but w " + shape_text(w) +
                 (transposed(n) ? " (transposed: K × N)" : " (N × K)") + " takes " + std::to_string(K));
  if (K > kMostTerms) wrong(n, "sums of " + std::to_string(K) + " products do not fit into I32; " + std::to_string(kMostTerms) + " do");
  if (!(n.f("threshold", 6) >= 0)) wrong(n, "threshold has to be at least 0");
  vector_of(n, 2, "bias", outputs(n));
  one_dtype(n, 0, "x", 1, "w");
  numbers(n, 2, "bias");
  like_in_dtype(out, 0, n, x, outputs(n));
}

/// x̂. Codes are made of float numbers, as kernels make them.
std::vector<double> as_multiplied(const Node& n) {
  const int64_t R = rows(n.in(0)), K = columns(n.in(0));
  const double* x = n.read<double>(0);
  const auto threshold = static_cast<float>(n.f("threshold", 6));
  std::vector<float> rounded(x, x + R * K);
  std::vector<char> outlier(static_cast<size_t>(K), 0);
  const auto at = [K](int64_t r, int64_t k) { return static_cast<size_t>(r * K + k); };
  const auto is_outlier = [threshold](float number) { return linear_int8::is_outlier(int8_rows::magnitude_bits(number), threshold); };
  for (int64_t r = 0; r < R; ++r)
    for (int64_t k = 0; k < K; ++k) {
      float& number = rounded[at(r, k)];
      number = int8_rows::in_f16(number);
      if (is_outlier(number)) outlier[static_cast<size_t>(k)] = 1;
    }
  std::vector<double> out(x, x + R * K);
  for (int64_t r = 0; r < R; ++r) {
    uint32_t most = 0;
    for (int64_t k = 0; k < K; ++k)
      if (!is_outlier(rounded[at(r, k)])) most = std::max(most, int8_rows::magnitude_bits(rounded[at(r, k)]));
    const float scale = int8_rows::magnitude(most), by = int8_rows::inverse(scale);
    for (int64_t k = 0; k < K; ++k)
      if (!outlier[static_cast<size_t>(k)]) out[at(r, k)] = int8_rows::code(rounded[at(r, k)], by) * static_cast<double>(scale) / 127;
  }
  return out;
}

void reference(const Node& n) {
  const int64_t R = rows(n.in(0)), K = columns(n.in(0)), N = outputs(n), row = transposed(n) ? 1 : K, step = transposed(n) ? N : 1;
  const std::vector<double> x = as_multiplied(n);
  const double *w = n.read<double>(1), *bias = n.read<double>(2);
  double* y = n.write<double>(0);
  for (int64_t r = 0; r < R; ++r)
    for (int64_t j = 0; j < N; ++j) {
      double sum = bias ? bias[j] : 0;
      for (int64_t k = 0; k < K; ++k) sum += x[static_cast<size_t>(r * K + k)] * w[j * row + k * step];
      y[r * N + j] = sum;
    }
}

void gradient(Backward& b) {
  const galley_tensor x = b.node.inputs[0], w = b.node.inputs[1], dy = b.d_outputs[0];
  const std::string name = b.node.name;
  Attrs attrs;
  if (const galley_attr* a = b.attr("transposed")) attrs.copy(*a);
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("linear_dx", (name + ".dx").c_str(), {dy, w}, attrs, {b.d_inputs[0]}, {b.adds(0)})[0];
  if (b.needs(1)) b.d_inputs[1] = b.graph.node("linear_dw", (name + ".dw").c_str(), {dy, x}, attrs, {b.d_inputs[1]}, {b.adds(1)})[0];
  if (b.needs(2)) b.d_inputs[2] = b.graph.node("sum_rows", (name + ".db").c_str(), {dy}, {}, {b.d_inputs[2]}, {b.adds(2)})[0];
}

void cost(const Node& n, galley_cost& out) {
  out.flops = 2.0 * static_cast<double>(rows(n.in(0))) * static_cast<double>(columns(n.in(0))) * static_cast<double>(outputs(n));
}

constexpr uint64_t F = GALLEY_F32, B = GALLEY_BF16, H = GALLEY_F16, compute = GALLEY_OPERAND_COMPUTE, any = GALLEY_OPERAND_ANY_DTYPE;

// Numbers lie within ±1, so a threshold below that makes outliers: of most columns where there are many rows.
Op linear_int8("linear_int8",
               "y = x̂·Wᵀ + b, x̂: rows of x in 8 bit, outlier columns as they are; x (…, K), W (N, K) or transposed (K, N), b (N)");
const bool added =
    add(linear_int8.input("x", GALLEY_ROLE_WHOLE, compute)
            .input("w", GALLEY_ROLE_WHOLE, compute)
            .input("bias", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | any)
            .output("y", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ACCUMULATES | any)
            .flags(GALLEY_OP_LINEAR | GALLEY_OP_LOW | GALLEY_OP_ROUNDS)
            .integer("transposed", 0, "1: the weight is (K, N)")
            .number("threshold", 6, "from which magnitude on a number makes its column an outlier; 0: none does")
            .infer<shape>()
            .gradient<gradient>()
            .cost<cost>()
            .reference<reference>()
            .test("small", {{F, {2, 3, 5}}, {F, {7, 5}}, {F, {7}}})
            .test("small transposed", {{F, {2, 3, 5}}, {F, {5, 7}}, {F, {7}}}, Attrs().i("transposed", 1).f("threshold", 0.9))
            .test("one", {{F, {1, 1}}, {F, {1, 1}}, {0, {}}})
            .test("zeros", {{F, {3, 40}, 0, 0}, {F, {5, 40}}, {0, {}}}, Attrs().f("threshold", 0))
            .test("odd", {{F, {129, 67}}, {F, {131, 67}}, {F, {131}}}, Attrs().f("threshold", 0.995))
            .test("odd transposed", {{F, {65, 1031}}, {F, {1031, 19}}, {0, {}}}, Attrs().i("transposed", 1).f("threshold", 0.999))
            .test("all outliers", {{F, {9, 130}}, {F, {70, 130}}, {F, {70}}}, Attrs().f("threshold", 1e-6))
            .test("blocks of rows", {{F, {300, 40}, -9, 9}, {F, {72, 40}}, {0, {}}}, Attrs().s("dtype", "bf16"))
            .test("deep", {{F, {9, 2052}}, {F, {72, 2052}}, {F, {72}}}, Attrs().f("threshold", 0.9999))
            .test("bf16", {{B, {33, 96}, -3, 3}, {B, {68, 96}}, {F, {68}}}, Attrs().f("threshold", 2.99))
            .test("bf16 to f32", {{B, {65, 130}}, {B, {60, 130}}, {B, {60}}}, Attrs().s("dtype", "f32").f("threshold", 0))
            .test("f16 transposed", {{H, {33, 103}}, {H, {103, 70}}, {H, {70}}}, Attrs().i("transposed", 1).f("threshold", 0.99)));

}  // namespace
}  // namespace galley::models::linear_int8_op
