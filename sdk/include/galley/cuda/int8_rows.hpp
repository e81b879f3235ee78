// The format "int8-rows" (galley/cpp/int8_rows.hpp) on CUDA: numbers of codes in one pass. A thread takes eight numbers of a row.
#pragma once

#include "galley/cpp/int8_rows.hpp"
#include "galley/cuda/kernel.hpp"

namespace galley::cuda {

namespace detail {

inline constexpr int kInt8Threads = 256;

template <int threads>
__global__ void __launch_bounds__(threads)
    unpack_int8_rows(sdk::int8_rows::Coded from, void* to, uint32_t dtype, int64_t rows, int64_t packs) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * threads + threadIdx.x, r = at / packs, c = at % packs * kPack;
  if (r >= rows) return;
  const int n = pack_at(c, from.row);
  const int8_t* const codes = from.codes + r * from.row + c;
  float x[kPack], scales[kPack];
  if (from.columns) {
    load_numbers(from.scales + c, n, scales);
  } else {
    const float scale = from.scales[r];
#pragma unroll
    for (int i = 0; i < kPack; ++i) scales[i] = scale;
  }
  Vector<int8_t, kPack> eight = {};
  if (n == kPack && reinterpret_cast<uintptr_t>(codes) % kPack == 0) {
    eight = load_vector<int8_t, kPack>(codes);
  } else {
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < n) eight.at[i] = codes[i];
  }
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = sdk::int8_rows::value(eight.at[i], sdk::int8_rows::unit(scales[i]));
  store_numbers(to, dtype, r * from.row + c, n, x);
}

}  // namespace detail

/// The n numbers of a tensor, each rounded once to `dtype`: F32, BF16 or F16.
inline void unpack(const sdk::int8_rows::Coded& from, void* to, uint32_t dtype, int64_t n, galley_queue* queue) {
  constexpr int threads = detail::kInt8Threads;
  const int64_t rows = n / from.row, packs = blocks_of(from.row, kPack);
  launch(detail::unpack_int8_rows<threads>, {blocks_of(rows * packs, threads), threads}, queue, from, to, dtype, rows, packs);
}

}  // namespace galley::cuda
