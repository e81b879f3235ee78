// The three products of a linear layer as products of matrices on CUDA: y = α·x·Wᵀ (+ b), dx = α·dy·W, dW = α·dyᵀ·x. A weight is
// stored (N, K), or with the attribute `transposed` (K, N); nothing is copied for either.
#pragma once

#include <algorithm>
#include <string_view>

#include "cuda/coded.hpp"
#include "cuda/gemm.hpp"
#include "galley/cuda/kernel.hpp"

namespace galley::cuda {

/// What a node's sums are made of: F32, unless its attribute `tf32` is 1.
inline Compute compute_type(const Node& node) {
  return node.in(0).dtype == GALLEY_F32 && node.i("tf32", 0) != 0 ? Compute::Tf32 : Compute::F32;
}

/// The product that a node of one of the three ops stands for; where its weight is in a format, without the address of B. Throws if its
/// operands are not numbers.
inline Matmul product_of(const Node& node) {
  if (!sdk::reads_coded(node, 1)) unsupported("another format");
  const bool transposed = node.i("transposed", 0) != 0;
  const galley_operand &first = node.in(0), &second = node.in(1), &out = node.out(0);
  if (!is_number(first.dtype) || second.dtype != first.dtype || !is_number(out.dtype) || (node.has(2) && !is_number(node.in(2).dtype)))
    unsupported("dtypes");
  const std::string_view op = node.view()->op;
  Matmul p;
  p.dtype = first.dtype;
  p.c_dtype = out.dtype;
  p.compute = compute_type(node);
  p.adds = node.accumulates(0);
  p.alpha = static_cast<float>(node.f("alpha", 1));
  p.c = out.data;
  if (op == "linear_dw") {  // dy (rows, N), x (rows, K); dW is (N, K), transposed (K, N)
    const galley_operand &a = transposed ? second : first, &b = transposed ? first : second;
    p.m = columns(a);
    p.k = rows(a);
    p.n = columns(b);
    p.a_transposed = true;
    p.a = a.data;
    p.b = b.data;
    return p;
  }
  p.m = rows(first);
  p.k = columns(first);
  p.n = columns(out);
  p.a = first.data;
  p.b = second.data;
  p.b_transposed = (op == "linear") != transposed;  // W (N, K) is Bᵀ in y, and B in dx
  if (op == "linear" && node.has(2)) {
    p.has_bias = true;
    p.bias = node.in(2).data;
    p.bias_dtype = node.in(2).dtype;
  }
  return p;
}

/// A weight that is unpacked before a product.
struct Unpacked {
  Coded weight;
  void* to;
};

/// Launches a product of any dtypes (cuda_tiles.cu).
void multiply_by_tiles(const Matmul& product, galley_queue* queue);

/// Products by cuBLASLt, as Gemm takes them, or by tiles where it turns out to have no algorithm: then a warning says so.
class LibraryProducts {
 public:
  LibraryProducts(const char* name, const std::vector<Matmul>& products, const galley_kernel_setup& setup) {
    try {
      gemm_.emplace_back(name, products, setup);
    } catch (const NoAlgorithm& none) {
      none.warn("Galley's own tiles make the product, which takes longer");
      tiles_ = products;
    }
  }
  void run(galley_queue* queue) const {
    for (const Gemm& gemm : gemm_) gemm.run(queue);
    for (const Matmul& product : tiles_) multiply_by_tiles(product, queue);
  }

 private:
  std::vector<Gemm> gemm_;  ///< one, or none
  std::vector<Matmul> tiles_;
};

}  // namespace galley::cuda
