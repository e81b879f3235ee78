// Output 0 from the node's first inputs, element by element, at the bandwidth of the operands. `Value` is a struct with
// `__device__ float operator()(float a[, float b]) const`; it is passed to the kernel by value.
//
//   struct Silu { __device__ float operator()(float x) const { return x / (1.0f + expf(-x)); } };
//   map(node, queue, Silu());        y = silu(x), or y += silu(x) where the node accumulates
//   map2(node, queue, SiluGrad());   y = value(a, b)
#pragma once

#include "galley/cuda/kernel.hpp"

namespace galley::cuda {

inline constexpr int kMapThreads = 256;

namespace detail {

template <class Value>
__global__ void __launch_bounds__(kMapThreads) map_numbers(Reader a, Writer y, int64_t count, Value value) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * kPack;
  if (at >= count) return;
  const int n = pack_at(at, count);
  float x[kPack];
  a.load(at, n, x);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = value(x[i]);
  y.store(at, n, x);
}

template <class Value>
__global__ void __launch_bounds__(kMapThreads) map_pairs(Reader a, Reader b, Writer y, int64_t count, Value value) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * kPack;
  if (at >= count) return;
  const int n = pack_at(at, count);
  float x[kPack], z[kPack];
  a.load(at, n, x);
  b.load(at, n, z);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = value(x[i], z[i]);
  y.store(at, n, x);
}

}  // namespace detail

/// The blocks of kMapThreads threads that take `count` numbers, eight each.
inline Grid map_grid(int64_t count) { return {blocks_of(count, kMapThreads * kPack), kMapThreads}; }

template <class Value>
void map(const Node& node, galley_queue* queue, Value value) {
  const int64_t n = count(node.out(0));
  launch(detail::map_numbers<Value>, map_grid(n), queue, Reader(node, 0), Writer(node, 0), n, value);
}
template <class Value>
void map2(const Node& node, galley_queue* queue, Value value) {
  const int64_t n = count(node.out(0));
  launch(detail::map_pairs<Value>, map_grid(n), queue, Reader(node, 0), Reader(node, 1), Writer(node, 0), n, value);
}

}  // namespace galley::cuda
