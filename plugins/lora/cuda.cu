// The ops of columns.cpp on CUDA, and lora_both.
//
//   dora_norm         a warp a row of W; of a transposed one, a block of 32 columns, of which eight threads share each. A and B come from
//                     the cache; bound by rank FMAs for each number of W, below some rank of 30 by reading W
//   scale_columns     eight numbers a thread; bound by memory
//   scale_columns_dw  pieces of 512 rows, a block for 32 columns of one, then the pieces in order; bound by memory
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"

namespace {

using namespace galley::cuda;

constexpr int kThreads = 256, kAcross = 32, kDown = kThreads / kAcross;
constexpr int64_t kPieceRows = 512;

// ---- dora_norm ---------------------------------------------------------------------------------------------------------------------

struct Weight {
  Reader w;
  const float *a, *b;
  float* norm;
  float scale;
  int64_t n, k, rank;
};

__global__ void __launch_bounds__(kThreads) norms_of_rows(Weight p) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kWarpSize) + threadIdx.x / kWarpSize;
  float sum = 0;
  if (row < p.n)
    for (int64_t k = static_cast<int64_t>(lane) * kPack; k < p.k; k += kWarpSize * kPack) {
      const int count = pack_at(k, p.k);
      float x[kPack];
      p.w.load(row * p.k + k, count, x);
      for (int64_t r = 0; r < p.rank; ++r) {
        const float b = p.scale * p.b[row * p.rank + r];
        float a[kPack];
        load_numbers(p.a + r * p.k + k, count, a);
#pragma unroll
        for (int i = 0; i < kPack; ++i) x[i] = fmaf(b, a[i], x[i]);
      }
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum = fmaf(x[i], x[i], sum);
    }
  sum = warp_sum(sum);
  if (lane == 0 && row < p.n) p.norm[row] = sqrtf(sum);
}

/// The sum over the threads of a column, for the first of them.
__device__ inline float sum_down(float x) {
  GALLEY_SHARED(float, of_thread, kThreads);
  const int thread = static_cast<int>(threadIdx.x);
  of_thread[thread] = x;
  __syncthreads();
  float sum = 0;
  if (thread < kAcross)
    for (int i = 0; i < kDown; ++i) sum += of_thread[i * kAcross + thread];
  return sum;
}

__global__ void __launch_bounds__(kThreads) norms_of_columns(Weight p) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t n = static_cast<int64_t>(blockIdx.x) * kAcross + thread % kAcross;
  float sum = 0;
  if (n < p.n)
    for (int64_t k = thread / kAcross; k < p.k; k += kDown) {
      float x = p.w.at(k * p.n + n);
      for (int64_t r = 0; r < p.rank; ++r) x = fmaf(p.scale * p.b[n * p.rank + r], p.a[r * p.k + k], x);
      sum = fmaf(x, x, sum);
    }
  sum = sum_down(sum);
  if (thread < kAcross && n < p.n) p.norm[n] = sqrtf(sum);
}

void run_norm(const Node& node, void*, galley_queue* queue) {
  const Weight p = {
      Reader(node, 0),     node.read<float>(1), node.read<float>(2), node.write<float>(0), static_cast<float>(node.f("scale", 1)),
      node.in(2).shape[0], node.in(1).shape[1], node.in(1).shape[0]};
  if (node.i("transposed", 0) != 0) launch(norms_of_columns, {blocks_of(p.n, kAcross), kThreads}, queue, p);
  else launch(norms_of_rows, {blocks_of(p.n, kThreads / kWarpSize), kThreads}, queue, p);
}

// ---- scale_columns ---------------------------------------------------------------------------------------------------------------------

struct Rows {
  Reader x, bias;
  const float *w, *norm;
  Writer y;
  int64_t rows, columns, packs;
};

__global__ void __launch_bounds__(kThreads) scale_rows(Rows p) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, r = pack / p.packs, c = pack % p.packs * kPack;
  if (r >= p.rows) return;
  const int n = pack_at(c, p.columns);
  float x[kPack], w[kPack], norm[kPack] = {}, bias[kPack] = {};
  p.x.load(r * p.columns + c, n, x);
  load_numbers(p.w + c, n, w);
  if (p.norm) load_numbers(p.norm + c, n, norm);
  if (p.bias.there()) p.bias.load(c, n, bias);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = (p.norm ? w[i] / norm[i] : w[i]) * x[i] + bias[i];
  p.y.store(r * p.columns + c, n, x);
}

void run_scale(const Node& node, void*, galley_queue* queue) {
  const Rows p = {Reader(node, 0), Reader(node, 3),  node.read<float>(1), node.read<float>(2),
                  Writer(node, 0), rows(node.in(0)), columns(node.in(0)), blocks_of(columns(node.in(0)), kPack)};
  launch(scale_rows, {blocks_of(p.rows * p.packs, kThreads), kThreads}, queue, p);
}

// ---- scale_columns_dw ------------------------------------------------------------------------------------------------------------------

struct Products {
  Reader dy, x;
  const float* norm;
  float* partial;  // (pieces, columns)
  Writer dw;
  int64_t rows, columns, pieces;
};

__global__ void __launch_bounds__(kThreads) sum_products(Products p) {
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t piece = blockIdx.x % p.pieces, c = blockIdx.x / p.pieces * kAcross + thread % kAcross;
  const int64_t end = (piece + 1) * kPieceRows < p.rows ? (piece + 1) * kPieceRows : p.rows;
  float sum = 0;
  if (c < p.columns)
    for (int64_t r = piece * kPieceRows + thread / kAcross; r < end; r += kDown)
      sum = fmaf(p.dy.at(r * p.columns + c), p.x.at(r * p.columns + c), sum);
  sum = sum_down(sum);
  if (thread < kAcross && c < p.columns) p.partial[piece * p.columns + c] = sum;
}

__global__ void __launch_bounds__(kThreads) add_pieces(Products p) {
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= p.columns) return;
  float sum = 0;
  for (int64_t piece = 0; piece < p.pieces; ++piece) sum += p.partial[piece * p.columns + c];
  p.dw.put(c, p.norm ? sum / p.norm[c] : sum);
}

int64_t pieces_of_sums(const Node& node, const galley_target&) {
  return blocks_of(rows(node.in(0)), kPieceRows) * columns(node.in(0)) * static_cast<int64_t>(sizeof(float));
}

void run_dw(const Node& node, void* workspace, galley_queue* queue) {
  const Products p = {Reader(node, 0), Reader(node, 1),  node.read<float>(3), static_cast<float*>(workspace),
                      Writer(node, 0), rows(node.in(0)), columns(node.in(0)), blocks_of(rows(node.in(0)), kPieceRows)};
  launch(sum_products, {p.pieces * blocks_of(p.columns, kAcross), kThreads}, queue, p);
  launch(add_pieces, {blocks_of(p.columns, kThreads), kThreads}, queue, p);
}

// ---- lora_both ---------------------------------------------------------------------------------------------------------------------

struct Both {
  const float *a, *b;
  float* y;
  int64_t of_a, of_b, count;  // numbers of a row
  float factor;
};

__global__ void __launch_bounds__(kThreads) put_both(Both p) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= p.count) return;
  const int64_t row = at / (p.of_a + p.of_b), i = at % (p.of_a + p.of_b);
  p.y[at] = i < p.of_a ? p.a[row * p.of_a + i] : p.factor * p.b[row * p.of_b + i - p.of_a];
}

void run_both(const Node& node, void*, galley_queue* queue) {
  const bool beside = node.i("columns", 0) != 0;
  const Both p = {node.read<float>(0),
                  node.read<float>(1),
                  node.write<float>(0),
                  beside ? columns(node.in(0)) : count(node.in(0)),
                  beside ? columns(node.in(1)) : count(node.in(1)),
                  count(node.out(0)),
                  static_cast<float>(node.f("factor", 1))};
  launch(put_both, {blocks_of(p.count, kThreads), kThreads}, queue, p);
}

const bool added = add(kernel<run_norm>("dora_norm.cuda", "dora_norm")) && add(kernel<run_scale>("scale_columns.cuda", "scale_columns")) &&
                   add(kernel<run_dw, all_numbers, pieces_of_sums>("scale_columns_dw.cuda", "scale_columns_dw")) &&
                   add(kernel<run_both>("lora_both.cuda", "lora_both"));

}  // namespace

GALLEY_PLUGIN("lora", "1.0.0");
