// Numbers of gguf-blocks: gguf_blocks_unpack, the codec, and embedding with a table in this format. A thread makes eight numbers, which share
// a scale; blocks begin at any even byte, so bytes are read one by one.
#include "galley/cuda/codec.hpp"
#include "gguf_blocks.hpp"

namespace galley::gguf_blocks {
namespace {

using namespace galley::cuda;

constexpr int kThreads = 256;

/// The eight numbers of a tensor from index `at` on, a multiple of 8.
__device__ __forceinline__ void eight_of(const Coded& from, int64_t at, float (&x)[kPack]) {
  const int numbers = numbers_of(from.type), i = static_cast<int>(at % numbers);
  const uint8_t* const block = from.blocks + at / numbers * bytes_of(from.type);
  const Scale of = scale_of(from.type, block, i);
#pragma unroll
  for (int k = 0; k < kPack; ++k) x[k] = value(of, code_of(from.type, block, i + k));
}

__global__ void __launch_bounds__(kThreads) make_numbers(Coded from, void* to, uint32_t dtype, int64_t n) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (at >= n) return;
  float x[kPack];
  eight_of(from, at, x);
  store_numbers(to, dtype, at, kPack, x);
}

/// n is whole blocks.
void unpack(const Coded& from, int64_t n, uint32_t dtype, void* to, galley_queue* queue) {
  launch(make_numbers, {blocks_of(n, kThreads * kPack), kThreads}, queue, from, to, dtype, n);
}

// embedding: y[r] = table[ids[r]]; ids (R) I32, y (R, C). Only the rows that are looked up are made.
__global__ void __launch_bounds__(kThreads)
    gather_rows(Coded table, uint32_t dtype, const int32_t* ids, Writer y, int64_t V, int64_t C, int64_t packs) {
  const int64_t pack = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pack >= packs) return;
  const int64_t at = pack * kPack, row = ids[at / C];
  if (row < 0 || row >= V) return refuse("an index that the tensor does not have");
  float x[kPack];
  eight_of(table, row * C + at % C, x);
#pragma unroll
  for (int i = 0; i < kPack; ++i) x[i] = rounded(x[i], dtype);
  y.store(at, kPack, x);
}

void embedding(const Node& n, void*, galley_queue* queue) {
  const galley_operand& table = n.in(1);
  const int64_t C = columns(table), packs = count(n.in(0)) * C / kPack;
  launch(gather_rows, {blocks_of(packs, kThreads), kThreads}, queue, Coded(table), table.dtype, n.read<int32_t>(0), Writer(n, 0),
         table.shape[0], C, packs);
}
bool is_coded(const Node& n) { return all_numbers(n) && n.in(1).format && galley_same_text(n.in(1).format, kName); }

const bool registered = add_codec<Coded, unpack>(kName) &&
                        add(unpack_kernel<Coded, unpack>("gguf_blocks_unpack.cuda", "gguf_blocks_unpack")) &&
                        add(kernel<embedding, is_coded>("embedding_gguf_blocks.cuda", "embedding", GALLEY_KERNEL_FORMATS));

}  // namespace
}  // namespace galley::gguf_blocks

GALLEY_PLUGIN("quantize-gguf", "1.0.0");
