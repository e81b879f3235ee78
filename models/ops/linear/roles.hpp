// The three products of a linear layer as products of matrices: y = α·x·Wᵀ (+ b), dx = α·dy·W, dW = α·dyᵀ·x. A weight is stored (N, K), or
// with the attribute `transposed` (K, N); nothing is copied for either, only strides differ.
#pragma once

#include <string_view>

#include "galley/cpp/plugin.hpp"
#include "ops/linear/blocked.hpp"

namespace galley::cpu {

/// The product that a node of one of the three ops stands for; at plan time its addresses are null.
inline Multiply product_of(const sdk::Node& node) {
  const bool transposed = node.i("transposed", 0) != 0;
  const void *first = node.read<char>(0), *second = node.read<char>(1);
  const int64_t rows = sdk::rows(node.in(0)), C = sdk::columns(node.in(0));
  const std::string_view op = node.view()->op;
  Multiply p = {};
  p.c = node.write<char>(0);
  p.add = node.accumulates(0);
  p.alpha = static_cast<float>(node.f("alpha", 1));
  p.dtype = node.in(0).dtype;
  p.c_dtype = node.out(0).dtype;
  p.bias_dtype = GALLEY_F32;
  if (op != "linear_dw") p.coded = Coded(node.in(1));
  if (op == "linear") {  // x (rows, K), W
    p.m = rows;
    p.k = C;
    p.n = sdk::columns(node.out(0));
    p.a = first;
    p.a_row = p.k;
    p.a_step = 1;
    p.b = second;
    p.b_row = transposed ? p.n : 1;
    p.b_step = transposed ? 1 : p.k;
    p.bias = node.read<char>(2);
    if (node.has(2)) p.bias_dtype = node.in(2).dtype;
  } else if (op == "linear_dx") {  // dy (rows, N), W
    p.m = rows;
    p.k = C;
    p.n = sdk::columns(node.out(0));
    p.a = first;
    p.a_row = p.k;
    p.a_step = 1;
    p.b = second;
    p.b_row = transposed ? 1 : p.n;
    p.b_step = transposed ? p.k : 1;
  } else {  // dy (rows, N), x (rows, K); dW is (N, K), transposed (K, N)
    const int64_t K = sdk::columns(node.in(1));
    p.m = transposed ? K : C;
    p.k = rows;
    p.n = transposed ? C : K;
    p.a = transposed ? second : first;
    p.a_row = 1;
    p.a_step = p.m;
    p.b = transposed ? first : second;
    p.b_row = p.n;
    p.b_step = 1;
  }
  return p;
}

/// A matrix of one row or one column is both.
inline bool a_transposed(const Multiply& p) { return p.a_row == 1; }
inline bool b_transposed(const Multiply& p) { return p.b_step != 1; }

}  // namespace galley::cpu
