// The format "gguf-blocks" (galley/cpp/gguf_blocks.hpp) on CUDA: numbers of blocks in one pass. A thread takes eight numbers, which share
// a scale; blocks begin at any even byte, so bytes are read one by one.
#pragma once

#include "galley/cpp/gguf_blocks.hpp"
#include "galley/cuda/kernel.hpp"

namespace galley::cuda {

namespace detail {

inline constexpr int kBlocksThreads = 256;

/// The eight numbers of a tensor from index `at` on, a multiple of 8.
__device__ __forceinline__ void eight_of(const sdk::gguf_blocks::Coded& from, int64_t at, float (&x)[kPack]) {
  using namespace sdk::gguf_blocks;
  const int numbers = numbers_of(from.type), i = static_cast<int>(at % numbers);
  const uint8_t* const block = from.blocks + at / numbers * bytes_of(from.type);
  const Scale of = scale_of(from.type, block, i);
#pragma unroll
  for (int k = 0; k < kPack; ++k) x[k] = value(of, code_of(from.type, block, i + k));
}

template <int threads>
__global__ void __launch_bounds__(threads) unpack_gguf_blocks(sdk::gguf_blocks::Coded from, void* to, uint32_t dtype, int64_t n) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x) * kPack;
  if (at >= n) return;
  float x[kPack];
  eight_of(from, at, x);
  store_numbers(to, dtype, at, kPack, x);
}

}  // namespace detail

/// The n numbers of a tensor, each rounded once to `dtype`: F32, BF16 or F16. n is whole blocks.
inline void unpack(const sdk::gguf_blocks::Coded& from, void* to, uint32_t dtype, int64_t n, galley_queue* queue) {
  constexpr int threads = detail::kBlocksThreads;
  launch(detail::unpack_gguf_blocks<threads>, {blocks_of(n, threads * kPack), threads}, queue, from, to, dtype, n);
}

}  // namespace galley::cuda
