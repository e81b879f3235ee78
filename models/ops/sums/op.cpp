// Sums: squares of a tensor (the global norm, and the proof that a gradient arrived), the norm they make, and a bias's gradient.
#include <algorithm>
#include <cmath>

#include "ops/check.hpp"

namespace galley::models::sums_op {
namespace {

using namespace sdk;

void sum_squares_shape(const Node& n, Shapes& out) {
  numbers(n, 0, "x");
  out.set(0, GALLEY_F64, {1});
}
void sum_squares_reference(const Node& n) {
  double sum = 0;
  for (int64_t i = 0; i < count(n.in(0)); ++i) sum += n.read<double>(0)[i] * n.read<double>(0)[i];
  *n.write<double>(0) = sum;
}

Op sum_squares("sum_squares", "y = Σ x², F64 (1)");
const bool squares_added = add(sum_squares.flags(GALLEY_OP_PRIVATE)
                                   .input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
                                   .output("y", GALLEY_ROLE_WHOLE)
                                   .infer<sum_squares_shape>()
                                   .reference<sum_squares_reference>()
                                   .test("small", {{GALLEY_F32, {2, 3, 5}}})
                                   .test("number", {{GALLEY_F32, {}}})
                                   .test("large", {{GALLEY_F32, {37, 6711}}})
                                   .test("bf16", {{GALLEY_BF16, {37, 671}}})
                                   .test("f16", {{GALLEY_F16, {37, 671}}})
                                   .test("zeros", {{GALLEY_F32, {37, 671}, 0, 0}})
                                   // Squares that F32 has no room for.
                                   .test("huge", {{GALLEY_F32, {3, 67}, -1e30, 1e30}})
                                   .test("tiny", {{GALLEY_F32, {3, 67}, -1e-30, 1e-30}})
                                   .test("huge_bf16", {{GALLEY_BF16, {37, 671}, -1e30, 1e30}}));

/// Elements of a block: with other ones the sums would have other bytes.
constexpr int64_t kBlock = 16384;
int64_t blocks_of(int64_t elements) { return (elements + kBlock - 1) / kBlock; }

void block_squares_shape(const Node& n, Shapes& out) {
  numbers(n, 0, "x");
  out.set(0, GALLEY_F64, {blocks_of(count(n.in(0)))});
}
void block_squares_reference(const Node& n) {
  for (int64_t block = 0; block < blocks_of(count(n.in(0))); ++block) {
    double sum = 0;
    for (int64_t i = block * kBlock; i < std::min(count(n.in(0)), (block + 1) * kBlock); ++i)
      sum += n.read<double>(0)[i] * n.read<double>(0)[i];
    n.write<double>(0)[block] = sum;
  }
}

Op block_squares("block_squares", "y = Σ x² of each 16,384 elements, F64 (blocks), to the bit as sum_squares adds them up");
const bool block_squares_added = add(block_squares.flags(GALLEY_OP_PRIVATE)
                                         .input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
                                         .output("y", GALLEY_ROLE_WHOLE)
                                         .infer<block_squares_shape>()
                                         .reference<block_squares_reference>()
                                         .test("small", {{GALLEY_F32, {2, 3, 5}}})
                                         .test("blocks", {{GALLEY_F32, {37, 6711}}})
                                         .test("even", {{GALLEY_F32, {2, 16384}}})
                                         .test("bf16", {{GALLEY_BF16, {37, 671}}})
                                         .test("f16", {{GALLEY_F16, {37, 671}}}));

void sum_blocks_shape(const Node& n, Shapes& out) {
  if (n.in(0).dtype != GALLEY_F64) wrong(n, "x has to be F64");
  out.set(0, GALLEY_F64, {1});
}
void sum_blocks_reference(const Node& n) {
  double sum = 0;
  for (int64_t i = 0; i < count(n.in(0)); ++i) sum += n.read<double>(0)[i];
  *n.write<double>(0) = sum;
}

Op sum_blocks("sum_blocks", "y = Σ x, to the bit as sum_squares adds up its blocks; x F64 (blocks), y F64 (1)");
const bool sum_blocks_added = add(sum_blocks.flags(GALLEY_OP_PRIVATE)
                                      .input("x", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
                                      .output("y", GALLEY_ROLE_WHOLE)
                                      .infer<sum_blocks_shape>()
                                      .reference<sum_blocks_reference>()
                                      .test("one", {{GALLEY_F64, {1}, 0, 5}})
                                      .test("several", {{GALLEY_F64, {301}, 0, 5}})
                                      .test("many", {{GALLEY_F64, {5003}, 0, 5}}));

void norm_shape(const Node& n, Shapes& out) {
  single(n, 0, "scale");
  in_f32(n, 0, "scale");
  for (uint32_t i = 1; i < n.view()->n_inputs; ++i) {
    single(n, i, "a sum of squares");
    if (n.in(i).dtype != GALLEY_F64) wrong(n, "sums of squares have to be F64");
  }
  out.set(0, GALLEY_F32, {1});
  out.set(1, GALLEY_I32, {1});
}
void norm_reference(const Node& n) {
  double sum = 0;
  for (uint32_t i = 1; i < n.view()->n_inputs; ++i) sum += *n.read<double>(i);
  *n.write<double>(0) = std::sqrt(sum) / *n.read<double>(0);
  *n.write<int32_t>(1) = !std::isfinite(sum);
}

/// As many sums as a large model has parameters.
std::vector<CaseInput> many_sums() {
  std::vector<CaseInput> inputs(301, CaseInput{GALLEY_F64, {1}, 0, 5});
  inputs[0] = {GALLEY_F32, {1}, 1, 2};
  return inputs;
}

Op norm_finish(
    "norm_finish",
    "norm = √(Σ sums) / scale, found_inf = 1 where Σ sums is not finite; scale F32 (1), sums F64 (1), norm F32 (1), found_inf I32 (1)");
const bool norm_added =
    add(norm_finish.flags(GALLEY_OP_PRIVATE)
            .input("scale", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
            .input("sums", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_VARIADIC | GALLEY_OPERAND_NO_GRADIENT)
            .output("norm", GALLEY_ROLE_WHOLE)
            .output("found_inf", GALLEY_ROLE_WHOLE)
            .infer<norm_shape>()
            .reference<norm_reference>()
            .test("none", {{GALLEY_F32, {1}, 1, 2}})
            .test("one", {{GALLEY_F32, {1}, 1, 2}, {GALLEY_F64, {1}, 0, 5}})
            .test("several", {{GALLEY_F32, {1}, 1000, 70000}, {GALLEY_F64, {1}, 0, 5}, {GALLEY_F64, {1}, 0, 1e9}, {GALLEY_F64, {1}, 0, 0}})
            .test("many", many_sums()));

void sum_rows_shape(const Node& n, Shapes& out) {
  has_rows(n, 0, "dy");
  numbers(n, 0, "dy");
  out.set(0, n.dtype(GALLEY_F32), {columns(n.in(0))});
}
void sum_rows_reference(const Node& n) {
  const int64_t R = rows(n.in(0)), N = columns(n.in(0));
  for (int64_t c = 0; c < N; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < R; ++r) sum += n.read<double>(0)[r * N + c];
    n.write<double>(0)[c] = sum;
  }
}

Op sum_rows("sum_rows", "y = Σ rows of dy; dy (…, N), y (N)");
const bool rows_added = add(sum_rows.input("dy", GALLEY_ROLE_ROWS, GALLEY_OPERAND_ANY_DTYPE)
                                .output("y", GALLEY_ROLE_REDUCED, GALLEY_OPERAND_ACCUMULATES | GALLEY_OPERAND_ANY_DTYPE)
                                .infer<sum_rows_shape>()
                                .reference<sum_rows_reference>()
                                .test("small", {{GALLEY_F32, {2, 3, 5}}})
                                .test("tall", {{GALLEY_F32, {3, 711, 67}}})
                                .test("wide", {{GALLEY_F32, {131, 1031}}})
                                .test("one_row", {{GALLEY_F32, {33}}})
                                .test("bf16", {{GALLEY_BF16, {3, 711, 67}}})
                                .test("f16", {{GALLEY_F16, {131, 1031}}})
                                .test("bf16_bf16", {{GALLEY_BF16, {131, 1031}}}, Attrs().s("dtype", "bf16"))
                                .test("f32_f16", {{GALLEY_F32, {2, 3, 5}}}, Attrs().s("dtype", "f16")));

}  // namespace
}  // namespace galley::models::sums_op
