// Rows of a matrix by index, or at equal distances: y[k] = x[index[k]], or x[begin + k · step]; x (R, C), index (n) I32, y (n, C). A team of up to a warp copies up to 1024 columns of a
// row, four packs a lane under way at once. Bound by memory. An index that x does not have fails the launch.
#pragma once

#include "cuda/packed.hpp"

namespace galley::cuda {

namespace detail {

inline constexpr int kGatherThreads = 256, kGatherPacks = 4;

template <int packs_ahead>
__global__ void __launch_bounds__(kGatherThreads) gather(Reader x, const int32_t* index, Writer y, int64_t R, int64_t C, int64_t taken,
                                                         int64_t pieces, int lanes, int64_t begin, int64_t step) {
  const int64_t team = static_cast<int64_t>(blockIdx.x) * (kGatherThreads / lanes) + threadIdx.x / lanes, k = team / pieces;
  if (k >= taken) return;
  const int64_t row = index ? index[k] : begin + k * step, first = (team % pieces * packs_ahead * lanes + threadIdx.x % lanes) * kPack;
  if (row < 0 || row >= R) return refuse("an index that the tensor does not have");
  Packed packs[packs_ahead];
#pragma unroll
  for (int j = 0; j < packs_ahead; ++j) {
    const int64_t c = first + j * lanes * kPack;
    if (c < C) packs[j] = fetch(x, row * C + c, pack_at(c, C));
  }
#pragma unroll
  for (int j = 0; j < packs_ahead; ++j) {
    const int64_t c = first + j * lanes * kPack;
    if (c >= C) continue;
    float numbers[kPack];
    unpack(packs[j], x.dtype, numbers);
    y.store(k * C + c, pack_at(c, C), numbers);
  }
}

}  // namespace detail

/// `index` null: rows begin, begin + step, …
inline void gather_rows(const Reader& x, const int32_t* index, const Writer& y, int64_t R, int64_t C, int64_t taken, galley_queue* queue,
                        int64_t begin = 0, int64_t step = 0) {
  const int lanes = lanes_of(C);
  const int64_t pieces = blocks_of(C, detail::kGatherPacks * lanes * kPack);
  launch(detail::gather<detail::kGatherPacks>, {blocks_of(taken * pieces, detail::kGatherThreads / lanes), detail::kGatherThreads}, queue,
         x, index, y, R, C, taken, pieces, lanes, begin, step);
}

}  // namespace galley::cuda
