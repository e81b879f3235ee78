// Element-wise activations and their gradients.
//
// GELU: Hendrycks, Gimpel: "Gaussian Error Linear Units", 2016, arXiv:1606.08415: x·Φ(x), as approximate = "none", or with
// Φ(x) ≈ (1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2, as approximate = "tanh" (GPT-2's).
// SiLU (x·σ(x)) is from the same paper, and so is x·σ(1.702·x), which transformers calls "quick_gelu". ReLU: Nair, Hinton, ICML 2010.
// Squared ReLU: So et al.: "Primer: Searching for Efficient Transformers for Language Modeling", 2021, arXiv:2109.08668.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::activation_op {
namespace {

using namespace sdk;

void like_x(const Node& n, Shapes& out) {
  numbers(n, 0, "x");
  like_in_dtype(out, 0, n, n.in(0));
}
void like_dy(const Node& n, Shapes& out) {
  same_shape(n, 0, "dy", 1, "x");
  one_dtype(n, 0, "dy", 1, "x");
  like_in_dtype(out, 0, n, n.in(0));
}

// "tanh" or "none"; anything else is a mistake of the family that built the graph.
bool by_tanh(const Node& n) {
  const std::string text = n.s("approximate", "none");
  if (text != "tanh" && text != "none") wrong(n, "approximate = '" + text + "'; it is 'tanh' or 'none'");
  return text == "tanh";
}
void gelu_shape(const Node& n, Shapes& out) {
  by_tanh(n);
  like_x(n, out);
}
void gelu_grad_shape(const Node& n, Shapes& out) {
  by_tanh(n);
  like_dy(n, out);
}

constexpr double root_2_over_pi = 0.79788456080286535588, cubic = 0.044715;

double gelu_tanh(double x) { return 0.5 * x * (1 + std::tanh(root_2_over_pi * (x + cubic * x * x * x))); }
double gelu_tanh_slope(double x) {
  const double t = std::tanh(root_2_over_pi * (x + cubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root_2_over_pi * (1 + 3 * cubic * x * x);
}
double gelu_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }
double gelu_erf_slope(double x) { return 0.5 * (1 + std::erf(x / std::sqrt(2.0))) + x * std::exp(-0.5 * x * x) * root_2_over_pi / 2; }
double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}
double relu(double x) { return x > 0 ? x : 0; }
double relu_slope(double x) { return x > 0 ? 1 : 0; }
double relu2(double x) { return x > 0 ? x * x : 0; }
double relu2_slope(double x) { return x > 0 ? 2 * x : 0; }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double sigmoid_slope(double x) { return sigmoid(x) * sigmoid(-x); }
double quick_gelu(double x) { return x * sigmoid(1.702 * x); }
double quick_gelu_slope(double x) { return sigmoid(1.702 * x) + 1.702 * x * sigmoid_slope(1.702 * x); }
double tanh_slope(double x) { return 4 * sigmoid_slope(2 * x); }
double tanh_of(double x) { return std::tanh(x); }

using Function = double (*)(double);
template <Function f>
void apply(const Node& n) {
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = f(n.read<double>(0)[i]);
}
template <Function slope>
void apply_slope(const Node& n) {
  for (int64_t i = 0; i < count(n.in(0)); ++i) n.write<double>(0)[i] = n.read<double>(0)[i] * slope(n.read<double>(1)[i]);
}
void gelu_reference(const Node& n) { by_tanh(n) ? apply<gelu_tanh>(n) : apply<gelu_erf>(n); }
void gelu_grad_reference(const Node& n) { by_tanh(n) ? apply_slope<gelu_tanh_slope>(n) : apply_slope<gelu_erf_slope>(n); }

// The gradient of "gelu" is "gelu_grad" with the same attributes, and so on.
void gradient(Backward& b) {
  if (!b.needs(0)) return;
  const std::string op = std::string(b.node.op) + "_grad";
  b.d_inputs[0] = b.graph.node(op.c_str(), nullptr, {b.d_outputs[0], b.node.inputs[0]}, b.attrs(), {b.d_inputs[0]}, {b.adds(0)})[0];
}

constexpr uint64_t compute = GALLEY_OPERAND_COMPUTE, any = GALLEY_OPERAND_ANY_DTYPE;

Op& forward(Op& op) { return op.input("x", GALLEY_ROLE_ROWS, compute).output("y", GALLEY_ROLE_ROWS, any, 0).gradient<gradient>(); }
Op& backward(Op& op) {
  return op.input("dy", GALLEY_ROLE_ROWS, compute)
      .input("x", GALLEY_ROLE_ROWS, compute)
      .output("dx", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any, 0);
}
// Away from 0 on purpose: ReLU has no slope there.
Op& forward_cases(Op& op) {
  return op.test("right", {{GALLEY_F32, {2, 3, 5}, 0.01, 4}})
      .test("left", {{GALLEY_F32, {37, 67}, -6, -0.01}})
      .test("far", {{GALLEY_F32, {5, 4099}, 0.01, 90}})
      .test("bf16", {{GALLEY_BF16, {37, 67}, -6, -0.01}})
      .test("f16", {{GALLEY_F16, {5, 4099}, 0.01, 90}})
      .test("bf16_f32", {{GALLEY_BF16, {3, 611}, 0.01, 6}}, Attrs().s("dtype", "f32"))
      .test("f32_f16", {{GALLEY_F32, {3, 611}, 0.01, 6}}, Attrs().s("dtype", "f16"));
}
Op& backward_cases(Op& op) {
  return op.test("right", {{GALLEY_F32, {2, 3, 5}}, {GALLEY_F32, {2, 3, 5}, 0.01, 4}})
      .test("left", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}, -6, -0.01}})
      .test("far", {{GALLEY_F32, {5, 4099}}, {GALLEY_F32, {5, 4099}, -90, 90}})
      .test("bf16", {{GALLEY_BF16, {37, 67}}, {GALLEY_BF16, {37, 67}, -6, -0.01}})
      .test("f16", {{GALLEY_F16, {5, 4099}}, {GALLEY_F16, {5, 4099}, -90, 90}})
      .test("bf16_f32", {{GALLEY_BF16, {3, 611}}, {GALLEY_BF16, {3, 611}, 0.01, 6}}, Attrs().s("dtype", "f32"));
}

Op gelu("gelu", "y = x Φ(x); approximate: tanh or none");
Op gelu_grad("gelu_grad", "dx = dy · d(x Φ(x))/dx");
const bool gelu_added =
    add(forward_cases(forward(gelu)
                          .string("approximate", "none", "tanh: by its approximation; none: by the error function")
                          .infer<gelu_shape>()
                          .reference<gelu_reference>())
            .test("tanh", {{GALLEY_F32, {9, 131}, -6, 6}}, Attrs().s("approximate", "tanh"))) &&
    add(backward_cases(backward(gelu_grad)
                           .string("approximate", "none", "tanh: by its approximation; none: by the error function")
                           .infer<gelu_grad_shape>()
                           .reference<gelu_grad_reference>())
            .test("tanh", {{GALLEY_F32, {9, 131}}, {GALLEY_F32, {9, 131}, -6, 6}}, Attrs().s("approximate", "tanh"))
            .test("tanh_far", {{GALLEY_F32, {2, 131}}, {GALLEY_F32, {2, 131}, -300, 300}}, Attrs().s("approximate", "tanh")));

Op silu_op("silu", "y = x / (1 + exp(-x))");
Op silu_grad("silu_grad", "dx = dy · d(x / (1 + exp(-x)))/dx");
const bool silu_added = add(forward_cases(forward(silu_op).infer<like_x>().reference<apply<silu>>())) &&
                        add(backward_cases(backward(silu_grad).infer<like_dy>().reference<apply_slope<silu_slope>>()));

Op relu_op("relu", "y = max(x, 0)");
Op relu_grad("relu_grad", "dx = dy where x > 0, else 0");
const bool relu_added = add(forward_cases(forward(relu_op).infer<like_x>().reference<apply<relu>>())) &&
                        add(backward_cases(backward(relu_grad).infer<like_dy>().reference<apply_slope<relu_slope>>()));

Op relu2_op("relu2", "y = max(x, 0)²");
Op relu2_grad("relu2_grad", "dx = 2 dy · max(x, 0)");
const bool relu2_added = add(forward_cases(forward(relu2_op).infer<like_x>().reference<apply<relu2>>())) &&
                         add(backward_cases(backward(relu2_grad).infer<like_dy>().reference<apply_slope<relu2_slope>>()));

Op quick_gelu_op("quick_gelu", "y = x / (1 + exp(-1.702 x))");
Op quick_gelu_grad("quick_gelu_grad", "dx = dy · d(x / (1 + exp(-1.702 x)))/dx");
const bool quick_gelu_added = add(forward_cases(forward(quick_gelu_op).infer<like_x>().reference<apply<quick_gelu>>())) &&
                              add(backward_cases(backward(quick_gelu_grad).infer<like_dy>().reference<apply_slope<quick_gelu_slope>>()));

Op sigmoid_op("sigmoid", "y = 1 / (1 + exp(-x))");
Op sigmoid_grad("sigmoid_grad", "dx = dy · σ(x) · σ(-x)");
const bool sigmoid_added = add(forward_cases(forward(sigmoid_op).infer<like_x>().reference<apply<sigmoid>>())) &&
                           add(backward_cases(backward(sigmoid_grad).infer<like_dy>().reference<apply_slope<sigmoid_slope>>()));

Op tanh_op("tanh", "y = tanh x");
Op tanh_grad("tanh_grad", "dx = dy · (1 - tanh²x)");
const bool tanh_added = add(forward_cases(forward(tanh_op).infer<like_x>().reference<apply<tanh_of>>())) &&
                        add(backward_cases(backward(tanh_grad).infer<like_dy>().reference<apply_slope<tanh_slope>>()));

}  // namespace
}  // namespace galley::models::activation_op
