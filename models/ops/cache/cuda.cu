// cache_rows, take_columns: a number a thread, into a cache in 8 bit 32 numbers a warp. Bound by memory. A position that the cache does not
// have fails the launch.
#include "galley/cuda/elementwise.hpp"
#include "galley/cuda/reduce.hpp"
#include "ops/cache/coded.hpp"
#include "ops/cache/columns.hpp"

namespace galley::cuda::cache_op {
namespace {

namespace coded = models::coded_cache;
namespace companded8 = sdk::companded8;

constexpr int kWarps = kMapThreads / kWarpSize;
static_assert(coded::kBlock == kWarpSize, "a lane for each number of a block");

struct Taken {
  int64_t row, part, column, width, count;
};
Taken taken_of(const Node& n, uint32_t x) {
  const models::Columns c = models::columns_of(n, x);
  return {columns(n.in(x)), c.part, c.column, c.width, c.count()};
}

/// x (rows, columns) of `S` rows a sequence; `start` null: y has as many rows as x.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    copy_columns(const T* x, T* y, const int32_t* start, Taken t, int64_t rows, int64_t S, int64_t L) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x, r = i / t.count, c = i % t.count;
  if (r >= rows) return;
  int64_t to = r;
  if (start) {
    const int64_t position = start[r / S] + r % S;
    if (position < 0 || position >= L) return refuse("a position that the cache does not have");
    to = r / S * L + position;
  }
  y[to * t.count + c] = x[r * t.row + c / t.width * t.part + t.column + c % t.width];
}

/// The columns taken of x as codes and scales of 32.
__global__ void __launch_bounds__(kMapThreads)
    encode_columns(Reader x, int8_t* codes, Bf16* scales, const int32_t* start, Taken t, int64_t rows, int64_t S, int64_t L) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int64_t blocks = coded::blocks(t.count), at = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  const int64_t r = at / blocks, k = at % blocks, c = k * coded::kBlock + lane;
  if (r >= rows) return;
  const int64_t position = start[r / S] + r % S, to = r / S * L + position;
  if (position < 0 || position >= L) return refuse("a position that the cache does not have");
  const float number = c < t.count ? x.at(r * t.row + c / t.width * t.part + t.column + c % t.width) : 0.0f;
  const uint16_t scale = companded8::scale(warp_max(companded8::magnitude_bits(number)));
  if (c < t.count) codes[to * t.count + c] = coded::code(number, coded::inverse(scale));
  if (lane == 0) scales[to * blocks + k].bits = scale;
}

void copy(const galley_operand& x, void* y, const int32_t* start, const Taken& t, int64_t S, int64_t L, galley_queue* queue) {
  const int64_t R = rows(x), blocks = blocks_of(R * t.count, kMapThreads);
  if (galley_dtype_bytes(x.dtype) == 4)
    launch(copy_columns<uint32_t>, {blocks, kMapThreads}, queue, static_cast<const uint32_t*>(x.data), static_cast<uint32_t*>(y), start, t,
           R, S, L);
  else
    launch(copy_columns<uint16_t>, {blocks, kMapThreads}, queue, static_cast<const uint16_t*>(x.data), static_cast<uint16_t*>(y), start, t,
           R, S, L);
}

void cache_rows(const Node& n, void*, galley_queue* queue) {
  const galley_operand& x = n.in(1);
  const Taken taken = taken_of(n, 1);
  const int64_t S = x.shape[1], L = n.in(0).shape[1];
  if (!n.has(3)) return copy(x, n.update<void>(0), n.read<int32_t>(2), taken, S, L, queue);
  launch(encode_columns, {blocks_of(rows(x) * coded::blocks(taken.count), kWarps), kMapThreads}, queue, Reader(n, 1), n.update<int8_t>(0),
         n.update<Bf16>(3), n.read<int32_t>(2), taken, rows(x), S, L);
}
void take_columns(const Node& n, void*, galley_queue* queue) { copy(n.in(0), n.write<void>(0), nullptr, taken_of(n, 0), 1, 1, queue); }

bool any(const Node&) { return true; }

const bool added =
    add(kernel<cache_rows, any>("cache_rows.cuda", "cache_rows")) && add(kernel<take_columns, any>("take_columns.cuda", "take_columns"));

}  // namespace
}  // namespace galley::cuda::cache_op
