// embedding_grad, and take_rows_grad with an index: dtable[ids[r]] += dy[r]; dy (R, C), ids (R) I32, dtable (V, C). Without atomics: ids are sorted (sort.hpp), so that the
// rows of dy that belong to one row of the table form a run, in their order.
//
//   sum_runs     a block of 8 warps takes a piece of the sorted rows and 256 columns; each warp sums a part of the piece, run by run. Runs
//                that end in the warp that they begin in go straight to the table. What a warp has of a run that crosses its border lies in
//                shared memory, and the warp where the run begins adds it up. What a block has of a run that crosses its border lies in the
//                workspace.
//   join_runs    a block adds those, for a run that begins in its piece; most find none.
//   clear_rows   writes zeros to the rows of ids that do not occur, if the node does not accumulate.
//
// So a padding id with a thousand rows is as quick as a thousand ids, and the order of every sum follows from ids and shapes. Each row of
// dy is read once, each row of dtable is written once. Bound by memory; the sort moves about 24 bytes a row and pass, of one or two passes.
#include <algorithm>

#include "cuda/packed.hpp"
#include "cuda/sort.hpp"

namespace galley::cuda::embedding_grad_op {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarpSize;
constexpr int kColumns = kWarpSize * kPack;  // of a block
constexpr int kAhead = 4;                    // rows fetched at a time; the keys' room is a multiple of it

struct Runs {
  Sorted rows;
  Reader dy;
  Writer dtable;
  float* partial;  // (pieces, 2, C): what a piece has of the run that it is entered by, of the one that it is left by
  int64_t C, V, tiles;
  int part;     // sorted rows that a warp sums
  int padding;  // the id of which nothing is added; -1: none

  __device__ int64_t piece() const { return int64_t{kWarps} * part; }
  /// Whether rows k − 1 and k are of one run.
  __device__ bool joined(int64_t k) const { return k > 0 && k < rows.n && rows.keys[k - 1] == rows.keys[k]; }
  /// The sum of all rows of one id.
  __device__ void store(int32_t id, int64_t c, int n, const float (&sum)[kPack]) const {
    const float zeros[kPack] = {};
    if (id != padding) dtable.store(id * C + c, n, sum);
    else if (id < V) dtable.store(id * C + c, n, zeros);
  }
};

/// What the warps of a block have of runs that cross their borders.
struct Borders {
  float* sums;  // (2, kWarps, kColumns)
  __device__ float* at(int end, int warp) const {
    return sums + (end * kWarps + warp) * kColumns + static_cast<int>(threadIdx.x) % kWarpSize * kPack;
  }
  __device__ void put(int end, int warp, const float (&sum)[kPack]) const {
#pragma unroll
    for (int i = 0; i < kPack; i += 4) store_vector<float, 4>(at(end, warp) + i, {{sum[i], sum[i + 1], sum[i + 2], sum[i + 3]}});
  }
  __device__ void add(int end, int warp, float (&sum)[kPack]) const {
#pragma unroll
    for (int i = 0; i < kPack; i += 4) {
      const Vector<float, 4> v = load_vector<float, 4>(at(end, warp) + i);
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[i + k] += v.at[k];
    }
  }
};
constexpr int kEntered = 0, kLeft = 1;

/// Sums rows [begin, end), which are this warp's. `entered`, `left`: whether the first run began before, and the last one goes on after.
__device__ __forceinline__ void sum_part(const Runs& runs, const Borders& borders, int64_t begin, int64_t end, int64_t c, int n,
                                         bool entered, bool left) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  float sum[kPack] = {};
  for (int64_t k = begin; k < end; k += kAhead) {
    const Vector<int32_t, kAhead> ids = load_vector<int32_t, kAhead>(runs.rows.keys + k);
    const Vector<int32_t, kAhead> from = load_vector<int32_t, kAhead>(runs.rows.from + k);
    const int32_t next = k + kAhead < end ? runs.rows.keys[k + kAhead] : -1;
    Packed packs[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (k + j < end && n > 0) packs[j] = fetch(runs.dy, from.at[j] * runs.C + c, n);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (k + j >= end || n <= 0) continue;
      float numbers[kPack];
      unpack(packs[j], runs.dy.dtype, numbers);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum[i] += numbers[i];
      const bool last = k + j + 1 == end;
      if (!last && ids.at[j] == (j + 1 < kAhead ? ids.at[(j + 1) % kAhead] : next)) continue;
      if (entered) borders.put(kEntered, warp, sum);
      else if (last && left) borders.put(kLeft, warp, sum);
      else runs.store(ids.at[j], c, n, sum);
      entered = false;
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum[i] = 0;
    }
  }
}

__global__ void __launch_bounds__(kThreads, 2) sum_runs(Runs runs) {
  GALLEY_SHARED(float, shared, 2 * kWarps * kColumns);
  const Borders borders = {shared};
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t block = blockIdx.x / runs.tiles, c = blockIdx.x % runs.tiles * kColumns + lane * kPack;
  const int n = pack_at(c, runs.C);
  const int64_t first = block * runs.piece(), begin = first + int64_t{warp} * runs.part, rows_n = runs.rows.n;
  const int64_t end = begin + runs.part < rows_n ? begin + runs.part : rows_n;
  const bool entered = begin < end && runs.joined(begin), left = begin < end && runs.joined(end);
  sum_part(runs, borders, begin, end, c, n, entered, left);
  __syncthreads();
  if (n <= 0 || begin >= end) return;
  // From warp `w` on, of the run with this id: what lies in the block.
  const auto collect = [&](int32_t id, int w, float(&sum)[kPack]) {
    for (; w < kWarps && first + int64_t{w} * runs.part < rows_n && runs.rows.keys[first + int64_t{w} * runs.part] == id; ++w)
      borders.add(kEntered, w, sum);
  };
  Writer partial;
  partial.data = runs.partial;
  if (warp == 0 && entered) {
    float sum[kPack] = {};
    collect(runs.rows.keys[begin], 0, sum);
    partial.store((block * 2 + kEntered) * runs.C + c, n, sum);
  }
  const int32_t id = runs.rows.keys[end - 1];
  if (!left || (entered && runs.rows.keys[begin] == id)) return;  // no run begins here and goes on
  float sum[kPack] = {};
  borders.add(kLeft, warp, sum);
  collect(id, warp + 1, sum);
  const int64_t after = first + runs.piece();
  if (runs.joined(after) && runs.rows.keys[after] == id) partial.store((block * 2 + kLeft) * runs.C + c, n, sum);
  else runs.store(id, c, n, sum);
}

__global__ void __launch_bounds__(kThreads) join_runs(Runs runs, int64_t pieces) {
  GALLEY_SHARED(float, shared, 2 * kWarps * kColumns);
  const Borders borders = {shared};
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t block = blockIdx.x / runs.tiles, c = blockIdx.x % runs.tiles * kColumns + lane * kPack;
  const int64_t begin = block * runs.piece(), after = begin + runs.piece();
  if (!runs.joined(after)) return;
  const int32_t id = runs.rows.keys[after];
  if (runs.rows.keys[begin] == id && runs.joined(begin)) return;  // the run began before
  // The last piece that begins with the run.
  int64_t low = block + 1, high = pieces - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (runs.rows.keys[middle * runs.piece()] == id) low = middle;
    else high = middle - 1;
  }
  const int n = pack_at(c, runs.C);
  Reader partial;
  partial.data = runs.partial;
  float sum[kPack] = {};
  for (int64_t p = block + 1 + warp; p <= low; p += kAhead * kWarps) {
    Packed packs[kAhead];
#pragma unroll
    for (int j = 0; j < kAhead; ++j)
      if (p + j * kWarps <= low) packs[j] = fetch(partial, ((p + j * kWarps) * 2 + kEntered) * runs.C + c, n);
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (p + j * kWarps > low) continue;
      float numbers[kPack];
      unpack(packs[j], GALLEY_F32, numbers);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sum[i] += numbers[i];
    }
  }
  borders.put(kEntered, warp, sum);
  __syncthreads();
  if (warp != 0 || n <= 0) return;
  partial.load((block * 2 + kLeft) * runs.C + c, n, sum);
  for (int w = 0; w < kWarps; ++w) borders.add(kEntered, w, sum);
  runs.store(id, c, n, sum);
}

/// A warp looks for as many rows of the table as it has lanes, each among the sorted ids; then the warps of the block clear those that do
/// not occur.
__global__ void __launch_bounds__(kThreads) clear_rows(Sorted rows, Writer dtable, int64_t V, int64_t C) {
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kWarpSize, mine = first + lane;
  int64_t low = 0, high = rows.n;  // the first key that is not below `mine`
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (rows.keys[middle] < mine) low = middle + 1;
    else high = middle;
  }
  const unsigned absent = __ballot_sync(kAllLanes, mine < V && (low == rows.n || rows.keys[low] != mine));
  const float zeros[kPack] = {};
  for (int r = warp; r < kWarpSize; r += kWarps)
    for (int64_t c = lane * kPack; (absent >> r & 1u) && c < C; c += kColumns) dtable.store((first + r) * C + c, pack_at(c, C), zeros);
}

/// How rows are divided, by shape alone: about 8192 warps, of 8 to 256 rows each.
struct Plan {
  explicit Plan(const Node& node)
      : C(columns(node.in(0))),
        V(rows(node.out(0))),
        tiles(blocks_of(C, kColumns)),
        sort(count(node.in(1)), std::max(V, node.i("padding", -1) + 1)) {
    while (part < 256 && part * int64_t{8192} < sort.n * tiles) part *= 2;
    pieces = blocks_of(sort.n, int64_t{kWarps} * part);
    at = blocks_of(sort.bytes, 256) * 256;
    bytes = at + (pieces > 1 ? pieces * 2 * C * static_cast<int64_t>(sizeof(float)) : 0);
  }
  int64_t C, V, tiles;
  SortPlan sort;
  int part = 8;
  int64_t pieces, at, bytes;  // at: where partial sums lie in the workspace
};

void embedding_grad(const Node& n, void* workspace, galley_queue* queue) {
  const Plan plan(n);
  const Writer dtable(n, 0);
  Runs runs = {};
  runs.rows = sort_keys(plan.sort, n.read<int32_t>(1), workspace, queue);
  runs.dy = Reader(n, 0);
  runs.dtable = dtable;
  runs.partial = reinterpret_cast<float*>(static_cast<char*>(workspace) + plan.at);
  runs.C = plan.C;
  runs.V = plan.V;
  runs.tiles = plan.tiles;
  runs.part = plan.part;
  runs.padding = static_cast<int>(n.i("padding", -1));
  launch(sum_runs, {plan.pieces * plan.tiles, kThreads}, queue, runs);
  if (plan.pieces > 1) launch(join_runs, {(plan.pieces - 1) * plan.tiles, kThreads}, queue, runs, plan.pieces);
  if (!dtable.adds) launch(clear_rows, {blocks_of(plan.V, kWarpSize), kThreads}, queue, runs.rows, dtable, plan.V, plan.C);
}

bool supported(const Node& n) {
  return n.has(1) && all_numbers(n) && count(n.in(1)) <= kMostKeys && rows(n.out(0)) <= int64_t{1} << 31 && count(n.in(1)) > 0;
}
int64_t workspace_of(const Node& n, const galley_target&) { return Plan(n).bytes; }

const bool added = add(kernel<embedding_grad, supported, workspace_of>("embedding_grad.cuda", "embedding_grad")) &&
                   add(kernel<embedding_grad, supported, workspace_of>("take_rows_grad.cuda", "take_rows_grad"));

}  // namespace
}  // namespace galley::cuda::embedding_grad_op
