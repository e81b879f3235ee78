// The ops of token_ops.cpp on CUDA. All are bound by memory. Where an output lies where its input does, only what differs is written.
//
//   put_token_rows      a warp a row: its lanes look for the id among the tokens, 32 at a time, and move the row, eight numbers a lane
//   token_slots         a thread an id, which reads the tokens in turn: all threads of a warp read the same one
//   put_token_columns   a copy of x where y lies elsewhere, eight numbers a thread; then a thread for each row and token
//   take_token_columns  a thread for each row and token
//   set_token_rows      the same copy; then a warp a token
#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"

namespace {

using namespace galley::cuda;

constexpr int kTokenThreads = 256, kTokenWarps = kTokenThreads / kWarpSize;

/// The first of n tokens that is the id, in every lane of a warp; n: none is.
__device__ inline int place_of(const int32_t* tokens, int n, int32_t id) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int first = 0; first < n; first += kWarpSize) {
    const unsigned found = __ballot_sync(kAllLanes, first + lane < n && tokens[first + lane] == id);
    if (found) return first + __ffs(static_cast<int>(found)) - 1;
  }
  return n;
}

/// A warp moves C numbers, or zeros where `from` is nothing.
__device__ inline void move_row(const Reader& from, int64_t at, const Writer& to, int64_t where, int64_t C) {
  for (int64_t c = static_cast<int64_t>(threadIdx.x % kWarpSize) * kPack; c < C; c += kWarpSize * kPack) {
    const int n = pack_at(c, C);
    float numbers[kPack] = {};
    if (from.there()) from.load(at + c, n, numbers);
    to.store(where + c, n, numbers);
  }
}

__global__ void __launch_bounds__(kTokenThreads) copy_numbers(Reader from, Writer to, int64_t count) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kTokenThreads + threadIdx.x) * kPack;
  if (at >= count) return;
  float numbers[kPack];
  from.load(at, pack_at(at, count), numbers);
  to.store(at, pack_at(at, count), numbers);
}

/// What lies elsewhere.
void copy_whole(const Node& node, galley_queue* queue) {
  if (node.in(0).data == node.out(0).data) return;
  const int64_t numbers = count(node.out(0));
  launch(copy_numbers, {blocks_of(numbers, kTokenThreads * kPack), kTokenThreads}, queue, Reader(node, 0), Writer(node, 0), numbers);
}

struct PutRows {
  Reader x, rows;
  const int32_t *ids, *tokens;
  Writer y;
  int64_t count, columns;
  int n, stays;  // stays: x lies where y does
};

__global__ void __launch_bounds__(kTokenThreads) put_rows(PutRows p) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kTokenWarps + threadIdx.x / kWarpSize;
  if (r >= p.count) return;
  const int place = place_of(p.tokens, p.n, p.ids[r]);
  if (place < p.n) move_row(p.rows, place * p.columns, p.y, r * p.columns, p.columns);
  else if (!p.stays) move_row(p.x, r * p.columns, p.y, r * p.columns, p.columns);
}

void run_put_token_rows(const Node& node, void*, galley_queue* queue) {
  const PutRows p = {Reader(node, 0),
                     Reader(node, 3),
                     node.read<int32_t>(1),
                     node.read<int32_t>(2),
                     Writer(node, 0),
                     rows(node.in(0)),
                     columns(node.in(0)),
                     static_cast<int>(count(node.in(2))),
                     node.in(0).data == node.out(0).data};
  launch(put_rows, {blocks_of(p.count, kTokenWarps), kTokenThreads}, queue, p);
}

__global__ void __launch_bounds__(kTokenThreads)
    find_slots(const int32_t* ids, const int32_t* tokens, int32_t* slots, int64_t count, int n, int64_t padding) {
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kTokenThreads + threadIdx.x;
  if (r >= count) return;
  const int32_t id = ids[r];
  int slot = 0;
  while (slot < n && tokens[slot] != id) ++slot;
  slots[r] = id == padding ? n : slot;
}

void run_token_slots(const Node& node, void*, galley_queue* queue) {
  const int64_t ids = count(node.in(0));
  launch(find_slots, {blocks_of(ids, kTokenThreads), kTokenThreads}, queue, node.read<int32_t>(0), node.read<int32_t>(1),
         node.write<int32_t>(0), ids, static_cast<int>(count(node.in(1))), node.i("padding", -1));
}

/// One of n tokens in one of the rows of V columns.
struct Columns {
  Reader from;
  const int32_t* tokens;
  Writer to;
  int64_t count, n, V;
};

__global__ void __launch_bounds__(kTokenThreads) put_columns(Columns p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kTokenThreads + threadIdx.x;
  if (i < p.count) p.to.put(i / p.n * p.V + p.tokens[i % p.n], p.from.there() ? p.from.at(i) : 0.0f);
}

__global__ void __launch_bounds__(kTokenThreads) take_columns(Columns p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kTokenThreads + threadIdx.x;
  if (i < p.count) p.to.put(i, p.from.at(i / p.n * p.V + p.tokens[i % p.n]));
}

Columns columns_of(const Node& node, uint32_t from) {
  const int64_t n = count(node.in(1));
  return {Reader(node, from), node.read<int32_t>(1), Writer(node, 0), rows(node.in(0)) * n, n, columns(node.in(0))};
}

void run_put_token_columns(const Node& node, void*, galley_queue* queue) {
  copy_whole(node, queue);
  const Columns p = columns_of(node, 2);
  launch(put_columns, {blocks_of(p.count, kTokenThreads), kTokenThreads}, queue, p);
}

void run_take_token_columns(const Node& node, void*, galley_queue* queue) {
  const Columns p = columns_of(node, 0);
  launch(take_columns, {blocks_of(p.count, kTokenThreads), kTokenThreads}, queue, p);
}

__global__ void __launch_bounds__(kTokenThreads) set_rows(Reader from, const int32_t* tokens, Writer to, int64_t n, int64_t C) {
  const int64_t j = static_cast<int64_t>(blockIdx.x) * kTokenWarps + threadIdx.x / kWarpSize;
  if (j < n) move_row(from, j * C, to, tokens[j] * C, C);
}

void run_set_token_rows(const Node& node, void*, galley_queue* queue) {
  copy_whole(node, queue);
  const int64_t n = count(node.in(1));
  launch(set_rows, {blocks_of(n, kTokenWarps), kTokenThreads}, queue, Reader(node, 2), node.read<int32_t>(1), Writer(node, 0), n,
         columns(node.in(0)));
}

const bool tokens_added = add(kernel<run_put_token_rows>("put_token_rows.cuda", "put_token_rows")) &&
                          add(kernel<run_token_slots>("token_slots.cuda", "token_slots")) &&
                          add(kernel<run_put_token_columns>("put_token_columns.cuda", "put_token_columns")) &&
                          add(kernel<run_take_token_columns>("take_token_columns.cuda", "take_token_columns")) &&
                          add(kernel<run_set_token_rows>("set_token_rows.cuda", "set_token_rows"));

}  // namespace
