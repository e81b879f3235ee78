// cache_rows, take_columns: a number a thread. Bound by memory. A position that the cache does not have fails the launch.
#include "galley/cuda/elementwise.hpp"
#include "ops/cache/columns.hpp"

namespace galley::cuda::cache_op {
namespace {

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
  copy(n.in(1), n.update<void>(0), n.read<int32_t>(2), taken_of(n, 1), n.in(1).shape[1], n.in(0).shape[1], queue);
}
void take_columns(const Node& n, void*, galley_queue* queue) { copy(n.in(0), n.write<void>(0), nullptr, taken_of(n, 0), 1, 1, queue); }

bool any(const Node&) { return true; }

const bool added =
    add(kernel<cache_rows, any>("cache_rows.cuda", "cache_rows")) && add(kernel<take_columns, any>("take_columns.cuda", "take_columns"));

}  // namespace
}  // namespace galley::cuda::cache_op
