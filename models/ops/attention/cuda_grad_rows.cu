// What attention's gradient needs before and after its two products of tiles: delta (B, heads, Sq) = Σ do·o, at the bandwidth of do and
// o; what each tile of queries sees; and dbias (heads, buckets), the sum over sequences and tiles of what the blocks of dq found of it.
#include "ops/attention/cuda_grad.hpp"

namespace galley::cuda::attention {
namespace {

constexpr int kLanes = 8, kRowsOfBlock = kThreads / kLanes, kWarps = kThreads / kWarpSize;

// The first `rows` blocks: eight lanes take a row of a head. The other blocks: a warp takes a tile of queries.
__global__ void __launch_bounds__(kThreads) attention_query_rows(GradCall call, int streamed, int64_t rows) {
  const Call& a = call.a;
  if (blockIdx.x >= rows) {
    const int tiles = (a.Sq + streamed - 1) / streamed;
    const int64_t which = (blockIdx.x - rows) * kWarps + threadIdx.x / kWarpSize;
    if (which >= static_cast<int64_t>(a.B) * tiles) return;
    const int b = static_cast<int>(which / tiles), query = static_cast<int>(which % tiles) * streamed;
    const Span span = span_of(a, b, query, smaller(streamed, a.Sq - query));
    if (threadIdx.x % kWarpSize == 0) call.spans[which] = span;
    return;
  }
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kLanes,
                all = static_cast<int64_t>(a.B) * a.Sq * a.heads;
  float sum = 0.0f;
  if (row < all)
    for (int d = static_cast<int>(threadIdx.x) % kLanes * kPack; d < a.D; d += kLanes * kPack) {
      float x[kPack], y[kPack];
      call.o.load(row * a.D + d, smaller(kPack, a.D - d), x);
      call.go.load(row * a.D + d, smaller(kPack, a.D - d), y);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sum = fmaf(x[k], y[k], sum);
    }
  sum = warp_sum<kLanes>(sum);
  if (row >= all || threadIdx.x % kLanes) return;
  const int64_t position = row / a.heads;
  call.delta[lse_at(a, static_cast<int>(position / a.Sq), static_cast<int>(row % a.heads), static_cast<int>(position % a.Sq))] = sum;
}

// A warp for each bucket of each head.
__global__ void __launch_bounds__(kThreads) attention_dbias(GradCall call, int tiles) {
  const Call& a = call.a;
  const int64_t which = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize, head = which / a.buckets, all = a.B * tiles;
  if (head >= a.heads) return;
  double sum = 0;
  for (int64_t i = threadIdx.x % kWarpSize; i < all; i += kWarpSize)
    sum += static_cast<double>(call.biases[((i / tiles * a.heads + head) * tiles + i % tiles) * a.buckets + which % a.buckets]);
  sum = warp_sum(sum);
  if (threadIdx.x % kWarpSize == 0) call.dbias.put(which, static_cast<float>(sum));
}

}  // namespace

void prepare_queries(const GradCall& c, int64_t streamed, galley_queue* queue) {
  const Call& a = c.a;
  const int64_t rows = (static_cast<int64_t>(a.B) * a.Sq * a.heads + kRowsOfBlock - 1) / kRowsOfBlock;
  const int64_t tiles = a.B * ((a.Sq + streamed - 1) / streamed);
  launch(attention_query_rows, {rows + (tiles + kWarps - 1) / kWarps, kThreads}, queue, c, static_cast<int>(streamed), rows);
}

void add_biases(const GradCall& c, int64_t resident, galley_queue* queue) {
  const Call& a = c.a;
  if (!c.dbias.there()) return;
  const int64_t blocks = (static_cast<int64_t>(a.heads) * a.buckets + kWarps - 1) / kWarps;
  launch(attention_dbias, {blocks, kThreads}, queue, c, static_cast<int>((a.Sq + resident - 1) / resident));
}

}  // namespace galley::cuda::attention
