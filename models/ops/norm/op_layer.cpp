// LayerNorm: Ba, Kiros, Hinton: "Layer Normalization", 2016, arXiv:1607.06450.
//
//   mean = Σ x / C,  rstd = 1 / √(Σ (x − mean)² / C + eps),  y = (x − mean)·rstd·w + b
//
// Backward, with x̂ = (x − mean)·rstd and g = dy·w: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)), dw = Σ dy·x̂, db = Σ dy over the rows.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::layer_norm_op {
namespace {

using namespace sdk;

void forward_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "x");
  const galley_operand& x = n.in(0);
  vector_of(n, 1, "w", columns(x));
  vector_of(n, 2, "b", columns(x));
  numbers(n, 0, "x");
  numbers(n, 1, "w");
  numbers(n, 2, "b");
  like_in_dtype(out, 0, n, x);
  like_rows(out, 1, GALLEY_F32, x);
  like_rows(out, 2, GALLEY_F32, x);
}

void forward_reference(const Node& n) {
  const double *x = n.read<double>(0), *w = n.read<double>(1), *b = n.read<double>(2);
  double *y = n.write<double>(0), *mean = n.write<double>(1), *rstd = n.write<double>(2);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  const double eps = n.f("eps", 1e-5);
  for (int64_t r = 0; r < R; ++r) {
    double m = 0, v = 0;
    for (int64_t c = 0; c < C; ++c) m += x[r * C + c];
    m /= static_cast<double>(C);
    for (int64_t c = 0; c < C; ++c) v += (x[r * C + c] - m) * (x[r * C + c] - m);
    const double s = 1 / std::sqrt(v / static_cast<double>(C) + eps);
    mean[r] = m;
    rstd[r] = s;
    for (int64_t c = 0; c < C; ++c) y[r * C + c] = (x[r * C + c] - m) * s * (w ? w[c] : 1) + (b ? b[c] : 0);
  }
}

void gradient(Backward& b) {
  const galley_tensor x = b.node.inputs[0], w = b.node.inputs[1], mean = b.node.outputs[1], rstd = b.node.outputs[2], dy = b.d_outputs[0];
  if (b.needs(0)) b.d_inputs[0] = b.graph.node("layer_norm_dx", nullptr, {dy, x, w, mean, rstd}, {}, {b.d_inputs[0]}, {b.adds(0)})[0];
  if (b.needs(1)) {
    const bool bias = b.needs(2);
    const auto d = b.graph.node("layer_norm_dw", nullptr, {dy, x, mean, rstd}, Attrs().i("bias", bias),
                                {b.d_inputs[1], bias ? b.d_inputs[2] : 0}, {b.adds(1), bias && b.adds(2)});
    b.d_inputs[1] = d[0];
    if (bias) b.d_inputs[2] = d[1];
  } else if (b.needs(2)) {
    b.d_inputs[2] = b.graph.node("sum_rows", nullptr, {dy}, {}, {b.d_inputs[2]}, {b.adds(2)})[0];
  }
}

constexpr uint64_t any = GALLEY_OPERAND_ANY_DTYPE, a_row = GALLEY_OPERAND_SAME_ROWS | GALLEY_OPERAND_NO_GRADIENT;

Op layer_norm("layer_norm",
              "y = (x - mean(x)) / sqrt(var(x) + eps) * w + b over the last extent; x (…, C), w (C), b (C), y (…, C), mean (…), rstd (…)");
const bool layer_norm_added =
    add(layer_norm.input("x", GALLEY_ROLE_ROWS, any)
            .input("w", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | any)
            .input("b", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | any)
            .output("y", GALLEY_ROLE_ROWS, any, 0)
            .output("mean", GALLEY_ROLE_ROWS, a_row)
            .output("rstd", GALLEY_ROLE_ROWS, a_row)
            .flags(GALLEY_OP_FULL)
            .number("eps", 1e-5, "added to the variance")
            .infer<forward_shape>()
            .gradient<gradient>()
            .reference<forward_reference>()
            .test("small", {{GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {8}}, {GALLEY_F32, {8}}})
            .test("odd", {{GALLEY_F32, {37, 67}, -3, 5}, {GALLEY_F32, {67}}, {GALLEY_F32, {67}}}, Attrs().f("eps", 1e-3))
            .test("no_bias", {{GALLEY_F32, {5, 33}}, {GALLEY_F32, {33}}, {0, {}}})
            .test("no_weights", {{GALLEY_F32, {5, 33}}, {0, {}}, {0, {}}})
            .test("wide", {{GALLEY_F32, {3, 1031}, 9, 11}, {GALLEY_F32, {1031}}, {GALLEY_F32, {1031}}})
            .test("bf16", {{GALLEY_BF16, {3, 1031}, -3, 5}, {GALLEY_F32, {1031}}, {GALLEY_F32, {1031}}})
            .test("f16", {{GALLEY_F16, {37, 67}, -3, 5}, {GALLEY_F16, {67}}, {GALLEY_F16, {67}}})
            .test("bf16_f32", {{GALLEY_BF16, {5, 633}}, {GALLEY_BF16, {633}}, {0, {}}}, Attrs().s("dtype", "f32"))
            .test("f32_bf16", {{GALLEY_F32, {3, 1031}}, {GALLEY_F32, {1031}}, {GALLEY_F32, {1031}}}, Attrs().s("dtype", "bf16"))
            // Lengths that GPUs take in one way each, with addresses that are aligned.
            .test("warp", {{GALLEY_F32, {11, 776}}, {GALLEY_BF16, {776}}, {GALLEY_F32, {776}}})
            .test("block", {{GALLEY_BF16, {3, 2064}, -3, 5}, {GALLEY_F32, {2064}}, {GALLEY_F32, {2064}}})
            .test("long", {{GALLEY_F32, {2, 8203}, 2, 5}, {GALLEY_F32, {8203}}, {0, {}}}));

// ---- Backward -------------------------------------------------------------------------------------------------------------------

void dx_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "dy");
  same_shape(n, 0, "dy", 1, "x");
  vector_of(n, 2, "w", columns(n.in(0)));
  one_a_row(n, 3, "mean", 1, "x");
  one_a_row(n, 4, "rstd", 1, "x");
  numbers(n, 0, "dy");
  numbers(n, 1, "x");
  numbers(n, 2, "w");
  in_f32(n, 3, "mean");
  in_f32(n, 4, "rstd");
  like_in_dtype(out, 0, n, n.in(0));
}

void dx_reference(const Node& n) {
  const double *dy = n.read<double>(0), *x = n.read<double>(1), *w = n.read<double>(2), *mean = n.read<double>(3),
               *rstd = n.read<double>(4);
  double* dx = n.write<double>(0);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  for (int64_t r = 0; r < R; ++r) {
    const auto hat = [&](int64_t c) { return (x[r * C + c] - mean[r]) * rstd[r]; };
    const auto g = [&](int64_t c) { return dy[r * C + c] * (w ? w[c] : 1); };
    double sum = 0, dot = 0;
    for (int64_t c = 0; c < C; ++c) {
      sum += g(c);
      dot += g(c) * hat(c);
    }
    for (int64_t c = 0; c < C; ++c) dx[r * C + c] = rstd[r] * (g(c) - sum / static_cast<double>(C) - hat(c) * dot / static_cast<double>(C));
  }
}

Op layer_norm_dx("layer_norm_dx", "dx of layer_norm; dy (…, C), x (…, C), w (C), mean (…), rstd (…), dx (…, C)");
const bool dx_added = add(
    layer_norm_dx.input("dy", GALLEY_ROLE_ROWS, any)
        .input("x", GALLEY_ROLE_ROWS, any)
        .input("w", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | any)
        .input("mean", GALLEY_ROLE_ROWS, a_row)
        .input("rstd", GALLEY_ROLE_ROWS, a_row)
        .output("dx", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any, 0)
        .flags(GALLEY_OP_FULL)
        .infer<dx_shape>()
        .reference<dx_reference>()
        .test("small",
              {{GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {8}}, {GALLEY_F32, {2, 3}}, {GALLEY_F32, {2, 3}, 0.5, 2}})
        .test("odd", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}}, {GALLEY_F32, {67}}, {GALLEY_F32, {37}}, {GALLEY_F32, {37}, 0.5, 2}})
        .test("no_weights", {{GALLEY_F32, {5, 33}}, {GALLEY_F32, {5, 33}}, {0, {}}, {GALLEY_F32, {5}}, {GALLEY_F32, {5}, 0.5, 2}})
        .test("wide",
              {{GALLEY_F32, {3, 1031}}, {GALLEY_F32, {3, 1031}}, {GALLEY_F32, {1031}}, {GALLEY_F32, {3}}, {GALLEY_F32, {3}, 0.5, 2}})
        .test("bf16",
              {{GALLEY_BF16, {3, 1031}}, {GALLEY_BF16, {3, 1031}}, {GALLEY_F32, {1031}}, {GALLEY_F32, {3}}, {GALLEY_F32, {3}, 0.5, 2}})
        .test("f16", {{GALLEY_F16, {37, 67}}, {GALLEY_F16, {37, 67}}, {GALLEY_F16, {67}}, {GALLEY_F32, {37}}, {GALLEY_F32, {37}, 0.5, 2}})
        .test("bf16 and f32", {{GALLEY_BF16, {3, 1031}}, {GALLEY_F32, {3, 1031}}, {0, {}}, {GALLEY_F32, {3}}, {GALLEY_F32, {3}, 0.5, 2}},
              Attrs().s("dtype", "f32"))
        .test("warp",
              {{GALLEY_F32, {11, 776}}, {GALLEY_BF16, {11, 776}}, {GALLEY_F32, {776}}, {GALLEY_F32, {11}}, {GALLEY_F32, {11}, 0.5, 2}})
        .test("block",
              {{GALLEY_BF16, {3, 2064}}, {GALLEY_F32, {3, 2064}}, {GALLEY_F32, {2064}}, {GALLEY_F32, {3}}, {GALLEY_F32, {3}, 0.5, 2}})
        .test("long",
              {{GALLEY_F32, {2, 8203}}, {GALLEY_F32, {2, 8203}}, {GALLEY_F32, {8203}}, {GALLEY_F32, {2}}, {GALLEY_F32, {2}, 0.5, 2}}));

void dw_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "dy");
  same_shape(n, 0, "dy", 1, "x");
  one_a_row(n, 2, "mean", 1, "x");
  one_a_row(n, 3, "rstd", 1, "x");
  numbers(n, 0, "dy");
  numbers(n, 1, "x");
  in_f32(n, 2, "mean");
  in_f32(n, 3, "rstd");
  const uint32_t dtype = n.dtype(GALLEY_F32);
  out.set(0, dtype, {columns(n.in(0))});
  if (n.i("bias", 1)) out.set(1, dtype, {columns(n.in(0))});
  else out.absent(1);
}

void dw_reference(const Node& n) {
  const double *dy = n.read<double>(0), *x = n.read<double>(1), *mean = n.read<double>(2), *rstd = n.read<double>(3);
  double *dw = n.write<double>(0), *db = n.write<double>(1);
  const int64_t R = rows(n.in(0)), C = columns(n.in(0));
  for (int64_t c = 0; c < C; ++c) {
    double w = 0, b = 0;
    for (int64_t r = 0; r < R; ++r) {
      w += dy[r * C + c] * (x[r * C + c] - mean[r]) * rstd[r];
      b += dy[r * C + c];
    }
    dw[c] = w;
    if (db) db[c] = b;
  }
}

Op layer_norm_dw("layer_norm_dw", "dw and, unless bias = 0, db of layer_norm; dy (…, C), x (…, C), mean (…), rstd (…), dw (C), db (C)");
const bool dw_added =
    add(layer_norm_dw.input("dy", GALLEY_ROLE_ROWS, any)
            .input("x", GALLEY_ROLE_ROWS, any)
            .input("mean", GALLEY_ROLE_ROWS, a_row)
            .input("rstd", GALLEY_ROLE_ROWS, a_row)
            .output("dw", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES | any)
            .output("db", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_OPTIONAL | any)
            .flags(GALLEY_OP_FULL)
            .integer("bias", 1, "0: there is no db")
            .infer<dw_shape>()
            .reference<dw_reference>()
            .test("small", {{GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {2, 3}}, {GALLEY_F32, {2, 3}, 0.5, 2}})
            .test("no_bias", {{GALLEY_F32, {37, 67}}, {GALLEY_F32, {37, 67}}, {GALLEY_F32, {37}}, {GALLEY_F32, {37}, 0.5, 2}},
                  Attrs().i("bias", 0))
            .test("tall", {{GALLEY_F32, {2, 333, 40}}, {GALLEY_F32, {2, 333, 40}}, {GALLEY_F32, {2, 333}}, {GALLEY_F32, {2, 333}, 0.5, 2}})
            .test("wide", {{GALLEY_F32, {131, 1031}}, {GALLEY_F32, {131, 1031}}, {GALLEY_F32, {131}}, {GALLEY_F32, {131}, 0.5, 2}})
            .test("bf16", {{GALLEY_BF16, {131, 1031}}, {GALLEY_F32, {131, 1031}}, {GALLEY_F32, {131}}, {GALLEY_F32, {131}, 0.5, 2}})
            .test("f16_f16", {{GALLEY_F16, {37, 67}}, {GALLEY_F16, {37, 67}}, {GALLEY_F32, {37}}, {GALLEY_F32, {37}, 0.5, 2}},
                  Attrs().s("dtype", "f16")));

}  // namespace
}  // namespace galley::models::layer_norm_op
