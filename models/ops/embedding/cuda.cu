// embedding: y[r] = table[ids[r]]; ids (R) I32, table (V, C), y (R, C) in F32. Bound by memory; see gather.hpp. Of a table in "gguf-blocks"
// a thread makes eight numbers of a row.
#include "cuda/gather.hpp"
#include "galley/cuda/gguf_blocks.hpp"

namespace galley::cuda::embedding_op {
namespace {

using sdk::gguf_blocks::Coded;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    gather_blocks(Coded table, uint32_t dtype, const int32_t* ids, Writer y, int64_t V, int64_t C, int64_t packs) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int64_t at = pack * kPack, row = ids[at / C];
  if (row < 0 || row >= V) return refuse("an index that the tensor does not have");
  float x[kPack];
  cuda::detail::eight_of(table, row * C + at % C, x);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = rounded(x[i], dtype);
  y.store(at, kPack, x);
}

void embedding(const Node& n, void*, galley_queue* queue) {
  const galley_operand& table = n.in(1);
  const int64_t V = table.shape[0], C = columns(table), R = count(n.in(0));
  if (!Coded::holds(table)) return gather_rows(Reader(n, 1), n.read<int32_t>(0), Writer(n, 0), V, C, R, queue);
  const int64_t packs = R * C / kPack;
  launch(gather_blocks, {blocks_of(packs, kThreads), kThreads}, queue, Coded(table), table.dtype, n.read<int32_t>(0), Writer(n, 0), V, C,
         packs);
}

bool reads_table(const Node& n) { return all_numbers(n) && (!n.in(1).format || Coded::holds(n.in(1))); }

const bool added = add(kernel<embedding, reads_table>("embedding.cuda", "embedding", GALLEY_KERNEL_FORMATS));

}  // namespace
}  // namespace galley::cuda::embedding_op
