// The two ways in which our own kernels compute attention: by fused multiply-adds, and on tensor cores. cuda.cu makes kernels of them; each
// has its forward and backward in files of their own.
#pragma once

#include "ops/attention/cuda_call.hpp"

namespace galley::cuda::attention {

struct ForwardCall {
  Call a;
  Reader q, k, v;
  Writer o;
  float* lse = nullptr;
};

struct GradCall {
  Call a;
  Reader q, k, v, o, go;
  const float* lse = nullptr;
  Writer dq, dk, dv, dbias;
  // Workspace: Σ do·o of each query (B, heads, Sq); what tiles of queries see; sums of dbias (B, heads, tiles of queries, buckets).
  float* delta = nullptr;
  Span* spans = nullptr;
  float* biases = nullptr;
};

/// Tiles of backward: `queries` that the kernel of dk and dv takes at a time, and of the blocks of dq.
struct GradTiles {
  int64_t streamed, resident;
};

/// The sizes that head sizes are rounded up to, and body(std::integral_constant<int, size>).
template <class Body>
void by_head_size(int64_t D, const Body& body) {
  if (D <= 32) body(std::integral_constant<int, 32>());
  else if (D <= 64) body(std::integral_constant<int, 64>());
  else if (D <= 96) body(std::integral_constant<int, 96>());
  else if (D <= 128) body(std::integral_constant<int, 128>());
  else body(std::integral_constant<int, 256>());
}

/// By fused multiply-adds in F32: heads of up to 256 numbers in any dtype.
struct Multiplied {
  static constexpr int64_t kPriority = 0;
  static const char* refuses_forward(const Node& n, const AttentionExtents& e);  ///< why; null: it takes the node
  static const char* refuses_gradient(const Node& n, const AttentionExtents& e);
  static void prepare_forward(const AttentionExtents& e);
  static void forward(const ForwardCall& c, galley_queue* queue);
  static GradTiles grad_tiles(int64_t D);
  static void prepare_gradient(const AttentionExtents& e);
  static void gradient(const GradCall& c, galley_queue* queue);
};

/// On tensor cores: BF16 and F16, heads of up to 256 numbers; backward up to 128.
struct TensorCores {
  static constexpr int64_t kPriority = 10;
  static const char* refuses_forward(const Node& n, const AttentionExtents& e);
  static const char* refuses_gradient(const Node& n, const AttentionExtents& e);
  static void prepare_forward(const AttentionExtents& e);
  static void forward(const ForwardCall& c, galley_queue* queue);
  static GradTiles grad_tiles(int64_t D);
  static void prepare_gradient(const AttentionExtents& e);
  static void gradient(const GradCall& c, galley_queue* queue);
};

}  // namespace galley::cuda::attention
