// Packing and unpacking of "int8-rows", and its codec. Packing: a block takes a row, or 32 columns where these have the scales, and reads it twice.
#include "galley/cpp/int8_rows.hpp"
#include "galley/cuda/codec.hpp"
#include "galley/cuda/reduce.hpp"

namespace {

using namespace galley::cuda;
namespace int8_rows = galley::sdk::int8_rows;

constexpr int kThreads = 256, kStrip = 32, kRowsAtOnce = kThreads / kStrip;

__device__ float in_f16(float x) { return rounded(int8_rows::within(x), GALLEY_F16); }

__global__ void __launch_bounds__(kThreads) pack_rows(const float* x, int64_t columns, int8_t* codes, float* scales) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * columns;
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t most = 0;
  for (int64_t c = thread; c < columns; c += kThreads) most = Max()(most, int8_rows::magnitude_bits(in_f16(x[begin + c])));
  const float scale = int8_rows::magnitude(block_reduce<kThreads>(most, 0u, Max())), by = int8_rows::inverse(scale);
  for (int64_t c = thread; c < columns; c += kThreads) codes[begin + c] = int8_rows::code(in_f16(x[begin + c]), by);
  if (thread == 0) scales[blockIdx.x] = scale;
}

__global__ void __launch_bounds__(kThreads) pack_columns(const float* x, int64_t rows, int64_t columns, int8_t* codes, float* scales) {
  GALLEY_SHARED(uint32_t, largest, kThreads);
  const int lane = static_cast<int>(threadIdx.x) % kStrip, first = static_cast<int>(threadIdx.x) / kStrip;
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kStrip + lane;
  uint32_t most = 0;
  if (c < columns)
    for (int64_t r = first; r < rows; r += kRowsAtOnce) most = Max()(most, int8_rows::magnitude_bits(in_f16(x[r * columns + c])));
  largest[threadIdx.x] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRowsAtOnce; ++i) most = Max()(most, largest[i * kStrip + lane]);
  if (c >= columns) return;
  const float scale = int8_rows::magnitude(most), by = int8_rows::inverse(scale);
  for (int64_t r = first; r < rows; r += kRowsAtOnce) codes[r * columns + c] = int8_rows::code(in_f16(x[r * columns + c]), by);
  if (first == 0) scales[c] = scale;
}

void pack(const Node& node, void*, galley_queue* queue) {
  const int64_t R = rows(node.in(0)), C = columns(node.in(0));
  const float* const x = node.read<float>(0);
  int8_t* const codes = node.write<int8_t>(0);
  float* const scales = node.write<float>(1);
  if (node.i("columns", 0)) launch(pack_columns, {blocks_of(C, kStrip), kThreads}, queue, x, R, C, codes, scales);
  else launch(pack_rows, {R, kThreads}, queue, x, C, codes, scales);
}

/// A thread makes eight numbers of a row.
__global__ void __launch_bounds__(kThreads) make_numbers(int8_rows::Coded from, void* to, uint32_t dtype, int64_t rows, int64_t packs) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, r = at / packs, c = at % packs * kPack;
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
  for (int i = 0; i < kPack; ++i) x[i] = int8_rows::value(eight.at[i], int8_rows::unit(scales[i]));
  store_numbers(to, dtype, r * from.row + c, n, x);
}
void unpack(const int8_rows::Coded& from, int64_t n, uint32_t dtype, void* to, galley_queue* queue) {
  const int64_t rows = n / from.row, packs = blocks_of(from.row, kPack);
  launch(make_numbers, {blocks_of(rows * packs, kThreads), kThreads}, queue, from, to, dtype, rows, packs);
}
bool any(const Node&) { return true; }

const bool registered = add(kernel<pack, any>("int8_rows_pack.cuda", "int8_rows_pack")) &&
                        add_codec<int8_rows::Coded, unpack>(int8_rows::kName) &&
                        add(unpack_kernel<int8_rows::Coded, unpack>("int8_rows_unpack.cuda", "int8_rows_unpack"));

}  // namespace

GALLEY_PLUGIN("quantize-int8", "1.0.0");
