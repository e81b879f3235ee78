// transpose: y[j, i] = x[i, j]; x (M, N), y (N, M). A block turns a tile of 64 by 64 in shared memory, so that both x and y are passed over
// in packs of eight neighbours: bound by memory. Rows of the tile are 65 numbers long, so that a column of it lies in different banks.
#include "cuda/packed.hpp"

namespace galley::cuda::transpose_op {
namespace {

constexpr int kThreads = 256, kTile = 64, kStride = kTile + 1;
constexpr int kPacks = kTile / kPack, kRows = kThreads / kPacks;  // packs of a row of the tile; rows that the block takes at once

__global__ void __launch_bounds__(kThreads) turn(Reader x, Writer y, int64_t M, int64_t N, int64_t tiles) {
  GALLEY_SHARED(float, tile, kTile* kStride);
  const int64_t i0 = blockIdx.x / tiles * kTile, j0 = blockIdx.x % tiles * kTile;
  const int row = static_cast<int>(threadIdx.x) / kPacks, at = static_cast<int>(threadIdx.x) % kPacks * kPack;
  Packed packs[kTile / kRows];
#pragma unroll
  for (int k = 0; k < kTile / kRows; ++k) {
    const int64_t i = i0 + row + k * kRows;
    if (i < M && j0 + at < N) packs[k] = fetch(x, i * N + j0 + at, pack_at(j0 + at, N));
  }
#pragma unroll
  for (int k = 0; k < kTile / kRows; ++k) {
    const int r = row + k * kRows;
    if (i0 + r >= M || j0 + at >= N) continue;
    float numbers[kPack];
    unpack(packs[k], x.dtype, numbers);
#pragma unroll
    for (int c = 0; c < kPack; ++c) tile[r * kStride + at + c] = numbers[c];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kTile / kRows; ++k) {
    const int c = row + k * kRows;
    if (j0 + c >= N || i0 + at >= M) continue;
    float numbers[kPack];
#pragma unroll
    for (int r = 0; r < kPack; ++r) numbers[r] = tile[(at + r) * kStride + c];
    y.store((j0 + c) * M + i0 + at, pack_at(i0 + at, M), numbers);
  }
}

void transpose(const Node& n, void*, galley_queue* queue) {
  const int64_t M = n.in(0).shape[0], N = n.in(0).shape[1], tiles = blocks_of(N, kTile);
  launch(turn, {tiles * blocks_of(M, kTile), kThreads}, queue, Reader(n, 0), Writer(n, 0), M, N, tiles);
}

const bool added = add(kernel<transpose>("transpose.cuda", "transpose"));

}  // namespace
}  // namespace galley::cuda::transpose_op
