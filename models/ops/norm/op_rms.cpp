// RMSNorm: Zhang, Sennrich: "Root Mean Square Layer Normalization", 2019, arXiv:1910.07467.
//
//   rstd = 1 / √(Σ x² / G + eps),  y = x·rstd·(offset + w)
//
// over spans of G elements: a whole row, or a part of it (Qwen3 normalises each head). The attribute offset is 0, or 1 where the
// weight is stored as what it differs from 1 by (Gemma, arXiv:2403.08295). Backward, with x̂ = x·rstd and g = dy·(offset + w):
// dx = rstd·(g − x̂·mean(g·x̂)), dw = Σ dy·x̂ over rows and spans.
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::rms_norm_op {
namespace {

using namespace sdk;

// x, and the weight where it is there, in any dtype.
void any_dtypes(const Node& n, uint32_t x, uint32_t w) {
  numbers(n, x, "x");
  numbers(n, w, "w");
}

// The attribute, or the weight's length, or a whole row of x; it has to divide the row.
int64_t group_of(const Node& n, uint32_t x, uint32_t w) {
  has_rows(n, x, "x");
  const int64_t N = columns(n.in(x)), G = n.i("group", n.has(w) ? count(n.in(w)) : N);
  if (G <= 0 || N % G) wrong(n, "spans of " + std::to_string(G) + " do not divide the rows of x " + shape_text(n.in(x)));
  vector_of(n, w, "w", G);
  return G;
}

void rstd_fits(const Node& n, uint32_t i, int64_t spans) {
  in_f32(n, i, "rstd");
  if (count(n.in(i)) != spans)
    wrong(n, "rstd is " + shape_text(n.in(i)) + "; it needs one value for each of the " + std::to_string(spans) + " spans of x " +
                 shape_text(n.in(1)));
}

void forward_shape(const Node& n, Shapes& out) {
  const int64_t G = group_of(n, 0, 1);
  any_dtypes(n, 0, 1);
  like_in_dtype(out, 0, n, n.in(0));
  galley_operand rstd = n.in(0);
  rstd.dtype = GALLEY_F32;
  out.like(1, rstd, columns(rstd) / G);
}

void forward_reference(const Node& n) {
  const double *x = n.read<double>(0), *w = n.read<double>(1);
  double *y = n.write<double>(0), *rstd = n.write<double>(1);
  const int64_t G = group_of(n, 0, 1), R = count(n.in(0)) / G;
  const double eps = n.f("eps", 1e-6), offset = n.f("offset", 0);
  for (int64_t r = 0; r < R; ++r) {
    double squares = 0;
    for (int64_t c = 0; c < G; ++c) squares += x[r * G + c] * x[r * G + c];
    rstd[r] = 1 / std::sqrt(squares / static_cast<double>(G) + eps);
    for (int64_t c = 0; c < G; ++c) y[r * G + c] = x[r * G + c] * rstd[r] * (w ? offset + w[c] : 1);
  }
}

void gradient(Backward& b) {
  const galley_tensor x = b.node.inputs[0], w = b.node.inputs[1], rstd = b.node.outputs[1], dy = b.d_outputs[0];
  const galley_tensor_info x_info = b.graph.info(x), rstd_info = b.graph.info(rstd);
  const int64_t G = x_info.shape[x_info.rank - 1] / rstd_info.shape[rstd_info.rank - 1];
  if (b.needs(0)) {
    Attrs attrs;
    attrs.i("group", G);
    if (const galley_attr* offset = b.attr("offset")) attrs.copy(*offset);
    b.d_inputs[0] = b.graph.node("rms_norm_dx", nullptr, {dy, x, w, rstd}, attrs, {b.d_inputs[0]}, {b.adds(0)})[0];
  }
  if (b.needs(1))
    b.d_inputs[1] = b.graph.node("rms_norm_dw", nullptr, {dy, x, rstd}, Attrs().i("group", G), {b.d_inputs[1]}, {b.adds(1)})[0];
}

constexpr uint64_t any = GALLEY_OPERAND_ANY_DTYPE;

Op rms_norm(
    "rms_norm",
    "y = x / sqrt(mean(x²) + eps) * (offset + w) over spans of G elements of the last extent; x (…, N), w (G), y (…, N), rstd (…, N / G)");
const bool rms_norm_added =
    add(rms_norm.input("x", GALLEY_ROLE_ROWS, any)
            .input("w", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | any)
            .output("y", GALLEY_ROLE_ROWS, any, 0)
            .output("rstd", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
            .flags(GALLEY_OP_FULL)
            .number("eps", 1e-6, "added to the mean of squares")
            .number("offset", 0, "added to w")
            .attr("group", GALLEY_ATTR_I64, 0, "how many elements share a mean of squares; without it, as many as w has, or a row")
            .infer<forward_shape>()
            .gradient<gradient>()
            .reference<forward_reference>()
            .test("small", {{GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {8}}})
            .test("odd", {{GALLEY_F32, {37, 67}, -3, 5}, {GALLEY_F32, {67}}}, Attrs().f("eps", 1e-3))
            .test("heads", {{GALLEY_F32, {2, 7, 48}}, {GALLEY_F32, {16}}}, Attrs().i("group", 16))
            .test("odd_heads", {{GALLEY_F32, {11, 35}}, {GALLEY_F32, {5}}})
            .test("offset", {{GALLEY_F32, {37, 67}, -3, 5}, {GALLEY_F32, {67}}}, Attrs().f("offset", 1))
            .test("offset_heads", {{GALLEY_F32, {2, 7, 48}}, {GALLEY_F32, {16}}}, Attrs().i("group", 16).f("offset", 1))
            .test("offset_bf16", {{GALLEY_BF16, {3, 1031}, -3, 5}, {GALLEY_BF16, {1031}}}, Attrs().f("offset", 1))
            .test("no_weight", {{GALLEY_F32, {5, 34}}, {0, {}}}, Attrs().i("group", 17))
            .test("wide", {{GALLEY_F32, {3, 1031}, 9, 11}, {GALLEY_F32, {1031}}})
            .test("bf16", {{GALLEY_BF16, {3, 1031}, -3, 5}, {GALLEY_F32, {1031}}})
            .test("bf16_heads", {{GALLEY_BF16, {2, 7, 48}}, {GALLEY_BF16, {16}}}, Attrs().i("group", 16))
            .test("f16_f32", {{GALLEY_F16, {37, 67}}, {GALLEY_F16, {67}}}, Attrs().s("dtype", "f32"))
            .test("f32_bf16", {{GALLEY_F32, {3, 1031}}, {GALLEY_F32, {1031}}}, Attrs().s("dtype", "bf16"))
            .test("f32_f16", {{GALLEY_F32, {5, 34}}, {0, {}}}, Attrs().i("group", 17).s("dtype", "f16"))
            // Lengths that GPUs take in one way each, with addresses that are aligned.
            .test("warp", {{GALLEY_F32, {11, 776}}, {GALLEY_BF16, {776}}})
            .test("block", {{GALLEY_BF16, {3, 2064}}, {GALLEY_F32, {2064}}})
            .test("long", {{GALLEY_F32, {2, 8203}, 2, 5}, {GALLEY_F32, {8203}}}));

// ---- Backward -------------------------------------------------------------------------------------------------------------------

void dx_shape(const Node& n, Shapes& out) {
  same_shape(n, 0, "dy", 1, "x");
  rstd_fits(n, 3, count(n.in(1)) / group_of(n, 1, 2));
  numbers(n, 0, "dy");
  any_dtypes(n, 1, 2);
  like_in_dtype(out, 0, n, n.in(0));
}

void dx_reference(const Node& n) {
  const double *dy = n.read<double>(0), *x = n.read<double>(1), *w = n.read<double>(2), *rstd = n.read<double>(3);
  double* dx = n.write<double>(0);
  const int64_t G = group_of(n, 1, 2), R = count(n.in(1)) / G;
  const double offset = n.f("offset", 0);
  for (int64_t r = 0; r < R; ++r) {
    const auto g = [&](int64_t c) { return dy[r * G + c] * (w ? offset + w[c] : 1); };
    double dot = 0;
    for (int64_t c = 0; c < G; ++c) dot += g(c) * x[r * G + c] * rstd[r];
    for (int64_t c = 0; c < G; ++c) dx[r * G + c] = rstd[r] * (g(c) - x[r * G + c] * rstd[r] * dot / static_cast<double>(G));
  }
}

Op rms_norm_dx("rms_norm_dx", "dx of rms_norm; dy (…, N), x (…, N), w (G), rstd (…, N / G), dx (…, N)");
const bool dx_added = add(
    rms_norm_dx.input("dy", GALLEY_ROLE_ROWS, any)
        .input("x", GALLEY_ROLE_ROWS, any)
        .input("w", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | any)
        .input("rstd", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
        .output("dx", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ACCUMULATES | any, 0)
        .flags(GALLEY_OP_FULL)
        .attr("group", GALLEY_ATTR_I64, 0, "how many elements share a mean of squares; without it, as many as w has, or a row")
        .number("offset", 0, "added to w")
        .infer<dx_shape>()
        .reference<dx_reference>()
        .test("small", {{GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {8}}, {GALLEY_F32, {2, 3, 1}, 0.5, 2}})
        .test("heads", {{GALLEY_F32, {2, 7, 48}}, {GALLEY_F32, {2, 7, 48}}, {GALLEY_F32, {16}}, {GALLEY_F32, {2, 7, 3}, 0.5, 2}})
        .test("offset", {{GALLEY_F32, {11, 67}}, {GALLEY_F32, {11, 67}}, {GALLEY_F32, {67}}, {GALLEY_F32, {11, 1}, 0.5, 2}},
              Attrs().f("offset", 1))
        .test("offset_heads", {{GALLEY_BF16, {2, 7, 48}}, {GALLEY_F32, {2, 7, 48}}, {GALLEY_BF16, {16}}, {GALLEY_F32, {2, 7, 3}, 0.5, 2}},
              Attrs().f("offset", 1))
        .test("no_weight", {{GALLEY_F32, {11, 34}}, {GALLEY_F32, {11, 34}}, {0, {}}, {GALLEY_F32, {11, 2}, 0.5, 2}}, Attrs().i("group", 17))
        .test("wide", {{GALLEY_F32, {3, 1031}}, {GALLEY_F32, {3, 1031}}, {GALLEY_F32, {1031}}, {GALLEY_F32, {3, 1}, 0.5, 2}})
        .test("bf16", {{GALLEY_BF16, {3, 1031}}, {GALLEY_BF16, {3, 1031}}, {GALLEY_BF16, {1031}}, {GALLEY_F32, {3, 1}, 0.5, 2}})
        .test("f16", {{GALLEY_F16, {2, 7, 48}}, {GALLEY_F16, {2, 7, 48}}, {GALLEY_F32, {16}}, {GALLEY_F32, {2, 7, 3}, 0.5, 2}})
        .test("bf16 and f32", {{GALLEY_BF16, {3, 1031}}, {GALLEY_F32, {3, 1031}}, {GALLEY_F32, {1031}}, {GALLEY_F32, {3, 1}, 0.5, 2}},
              Attrs().s("dtype", "f32"))
        .test("warp", {{GALLEY_F32, {11, 776}}, {GALLEY_BF16, {11, 776}}, {GALLEY_F32, {776}}, {GALLEY_F32, {11, 1}, 0.5, 2}})
        .test("block", {{GALLEY_BF16, {3, 2064}}, {GALLEY_F32, {3, 2064}}, {GALLEY_F32, {2064}}, {GALLEY_F32, {3, 1}, 0.5, 2}})
        .test("long", {{GALLEY_F32, {2, 8203}}, {GALLEY_F32, {2, 8203}}, {GALLEY_F32, {8203}}, {GALLEY_F32, {2, 1}, 0.5, 2}}));

void dw_shape(const Node& n, Shapes& out) {
  same_shape(n, 0, "dy", 1, "x");
  const int64_t G = n.i("group", columns(n.in(1)));
  if (G <= 0 || columns(n.in(1)) % G) wrong(n, "spans of " + std::to_string(G) + " do not divide the rows of x " + shape_text(n.in(1)));
  rstd_fits(n, 2, count(n.in(1)) / G);
  numbers(n, 0, "dy");
  numbers(n, 1, "x");
  out.set(0, n.dtype(GALLEY_F32), {G});
}

void dw_reference(const Node& n) {
  const double *dy = n.read<double>(0), *x = n.read<double>(1), *rstd = n.read<double>(2);
  double* dw = n.write<double>(0);
  const int64_t G = count(n.out(0)), R = count(n.in(0)) / G;
  for (int64_t c = 0; c < G; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < R; ++r) sum += dy[r * G + c] * x[r * G + c] * rstd[r];
    dw[c] = sum;
  }
}

Op rms_norm_dw("rms_norm_dw", "dw of rms_norm; dy (…, N), x (…, N), rstd (…, N / G), dw (G), G = the attribute group");
const bool dw_added = add(
    rms_norm_dw.input("dy", GALLEY_ROLE_ROWS, any)
        .input("x", GALLEY_ROLE_ROWS, any)
        .input("rstd", GALLEY_ROLE_ROWS, GALLEY_OPERAND_NO_GRADIENT)
        .output("dw", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES | any)
        .flags(GALLEY_OP_FULL)
        .attr("group", GALLEY_ATTR_I64, 0, "how many elements share a mean of squares; without it, a row")
        .infer<dw_shape>()
        .reference<dw_reference>()
        .test("small", {{GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {2, 3, 8}}, {GALLEY_F32, {2, 3, 1}, 0.5, 2}})
        .test("heads", {{GALLEY_F32, {2, 107, 48}}, {GALLEY_F32, {2, 107, 48}}, {GALLEY_F32, {2, 107, 3}, 0.5, 2}}, Attrs().i("group", 16))
        .test("odd_heads", {{GALLEY_F32, {11, 35}}, {GALLEY_F32, {11, 35}}, {GALLEY_F32, {11, 7}, 0.5, 2}}, Attrs().i("group", 5))
        .test("wide", {{GALLEY_F32, {131, 1031}}, {GALLEY_F32, {131, 1031}}, {GALLEY_F32, {131, 1}, 0.5, 2}})
        .test("bf16", {{GALLEY_BF16, {131, 1031}}, {GALLEY_F32, {131, 1031}}, {GALLEY_F32, {131, 1}, 0.5, 2}})
        .test("f16_f16", {{GALLEY_F16, {2, 3, 8}}, {GALLEY_F16, {2, 3, 8}}, {GALLEY_F32, {2, 3, 1}, 0.5, 2}}, Attrs().s("dtype", "f16")));

}  // namespace
}  // namespace galley::models::rms_norm_op
