// Sorts n integer keys 0 ≤ key < limit and tells where each one was: least significant digit first, in passes of up to 9 bits, each of them
// stable (Knuth: "The Art of Computer Programming", vol. 3, 5.2.5; on GPUs Satish, Harris, Garland: "Designing Efficient Sorting Algorithms
// for Manycore GPUs", 2009). A pass is three launches:
//
//   count    a block counts the digits of its 1024 keys
//   offsets  a warp for each digit: how many keys with it lie in the blocks before
//   scatter  each key goes to (keys with a smaller digit) + (equal ones in the blocks before) + (equal ones before it in its block)
//
// A warp takes its keys 32 at a time, in order; lanes with equal digits find each other by __match_any_sync. There are no atomics: the
// result is that of any stable sort. A key that is out of range fails the launch.
//
//   const SortPlan plan(n, limit);              plan.bytes of workspace, from shapes alone
//   const Sorted sorted = sort_keys(plan, keys, workspace, queue);
//   sorted.keys[k], sorted.from[k]              for k < n; after them is room up to a multiple of 4
#pragma once

#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"

namespace galley::cuda {

inline constexpr int kSortThreads = 256, kSortWarps = kSortThreads / kWarpSize, kSortItems = 4, kSortTile = kSortThreads * kSortItems;
inline constexpr int kSortBits = 9, kSortDigits = 1 << kSortBits;
inline constexpr int64_t kMostKeys = int64_t{1} << 30;

struct SortPlan {
  SortPlan(int64_t n_, int64_t limit_) : n(n_), limit(limit_), tiles(blocks_of(n_, kSortTile)) {
    int width = 1;
    while (width < 31 && int64_t{1} << width < limit) ++width;
    passes = (width + kSortBits - 1) / kSortBits;
    bits = (width + passes - 1) / passes;
    const int64_t digits = int64_t{1} << bits;
    bytes = (4 * room() + digits * tiles + digits) * static_cast<int64_t>(sizeof(int32_t));
  }
  int64_t room() const { return blocks_of(n, 4) * 4; }

  int64_t n, limit, tiles, bytes;
  int passes, bits;
};

/// Keys in order, and the index that each had. Equal keys are in the order of their indices.
struct Sorted {
  const int32_t *keys = nullptr, *from = nullptr;
  int64_t n = 0;
};

namespace detail {

/// One digit of keys, and where it is counted: counts[digit · tiles + tile], totals[digit].
struct SortPass {
  const int32_t *keys, *from;  // from: null in the first pass
  int32_t *to_keys, *to_from, *counts, *totals;
  int64_t n, tiles, limit;
  int shift, digits;

  __device__ int digit(int32_t key) const { return static_cast<int>(static_cast<uint32_t>(key) >> shift) & (digits - 1); }
};

/// What a thread has of its block's keys: key `k` of warp w is that of index tile + (w · kSortItems + k) · 32 + lane.
struct SortKeys {
  int32_t key[kSortItems];
  int rank[kSortItems];  // how many keys of this warp before it have its digit

  /// All threads of a block call it. In the end, counts[warp · kSortDigits + digit] is how many keys of the warp have the digit.
  __device__ void rank_all(const SortPass& pass, int32_t* counts) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    int32_t* const mine = counts + static_cast<int>(threadIdx.x) / kWarpSize * kSortDigits;
    int digit[kSortItems];
    unsigned equal[kSortItems];  // lanes
#pragma unroll
    for (int k = 0; k < kSortItems; ++k) key[k] = index(k) < pass.n ? pass.keys[index(k)] : 0;
#pragma unroll
    for (int k = 0; k < kSortItems; ++k) {
      digit[k] = index(k) < pass.n ? pass.digit(key[k]) : pass.digits;
      equal[k] = __match_any_sync(kAllLanes, static_cast<unsigned>(digit[k]));
    }
    for (int d = lane; d < pass.digits; d += kWarpSize) mine[d] = 0;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kSortItems; ++k) {
      const unsigned before = equal[k] & ((1u << lane) - 1);
      const int32_t count = index(k) < pass.n ? mine[digit[k]] : 0;
      rank[k] = count + __popc(before);
      __syncwarp();
      if (index(k) < pass.n && before == 0) mine[digit[k]] = count + __popc(equal[k]);
      __syncwarp();
    }
  }
  __device__ static int64_t index(int k) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
    return static_cast<int64_t>(blockIdx.x) * kSortTile + (warp * kSortItems + k) * kWarpSize + lane;
  }
};

template <bool first>
__global__ void __launch_bounds__(kSortThreads) sort_count(SortPass pass) {
  GALLEY_SHARED(int32_t, counts, kSortWarps * kSortDigits);
  SortKeys keys;
  keys.rank_all(pass, counts);
  if constexpr (first) {
#pragma unroll
    for (int k = 0; k < kSortItems; ++k)
      if (keys.key[k] < 0 || keys.key[k] >= pass.limit) refuse("an id that is not in the table");
  }
  __syncthreads();
  for (int d = static_cast<int>(threadIdx.x); d < pass.digits; d += kSortThreads) {
    int32_t sum = 0;
#pragma unroll
    for (int w = 0; w < kSortWarps; ++w) sum += counts[w * kSortDigits + d];
    pass.counts[d * pass.tiles + blockIdx.x] = sum;
  }
}

/// The sum over this lane and those before it.
template <class T>
__device__ inline T warp_prefix(T x) {
#pragma unroll
  for (int by = 1; by < kWarpSize; by *= 2) {
    const T other = __shfl_up_sync(kAllLanes, x, static_cast<unsigned>(by));
    if (static_cast<int>(threadIdx.x) % kWarpSize >= by) x += other;
  }
  return x;
}

template <int warps>
__global__ void __launch_bounds__(warps* kWarpSize) sort_offsets(SortPass pass) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t d = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / kWarpSize;
  if (d >= pass.digits) return;
  int32_t* const counts = pass.counts + d * pass.tiles;
  int32_t total = 0;
  for (int64_t tile = lane; tile - lane < pass.tiles; tile += kWarpSize) {
    const int32_t count = tile < pass.tiles ? counts[tile] : 0, sum = warp_prefix(count);
    if (tile < pass.tiles) counts[tile] = total + sum - count;
    total += __shfl_sync(kAllLanes, sum, kWarpSize - 1);
  }
  if (lane == 0) pass.totals[d] = total;
}

template <bool first>
__global__ void __launch_bounds__(kSortThreads) sort_scatter(SortPass pass) {
  constexpr int each = kSortDigits / kSortThreads;  // digits a thread
  GALLEY_SHARED(int32_t, counts, kSortWarps * kSortDigits);
  GALLEY_SHARED(int32_t, of_warp, kSortWarps);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarpSize;
  SortKeys keys;
  keys.rank_all(pass, counts);
  int32_t totals[each], sum = 0;
#pragma unroll
  for (int k = 0; k < each; ++k) {
    totals[k] = thread * each + k < pass.digits ? pass.totals[thread * each + k] : 0;
    sum += totals[k];
  }
  const int32_t prefix = warp_prefix(sum);
  if (thread % kWarpSize == kWarpSize - 1) of_warp[warp] = prefix;
  __syncthreads();
  int32_t begin = prefix - sum;  // of this thread's first digit, among all keys
#pragma unroll
  for (int w = 0; w < kSortWarps; ++w)
    if (w < warp) begin += of_warp[w];
#pragma unroll
  for (int k = 0; k < each; ++k) {
    const int d = thread * each + k;
    if (d < pass.digits) {
      int32_t at = begin + pass.counts[d * pass.tiles + blockIdx.x];
#pragma unroll
      for (int w = 0; w < kSortWarps; ++w) {
        const int32_t count = counts[w * kSortDigits + d];
        counts[w * kSortDigits + d] = at;
        at += count;
      }
    }
    begin += totals[k];
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kSortItems; ++k) {
    const int64_t i = SortKeys::index(k);
    if (i >= pass.n) continue;
    const int32_t to = counts[warp * kSortDigits + pass.digit(keys.key[k])] + keys.rank[k];
    pass.to_keys[to] = keys.key[k];
    pass.to_from[to] = first ? static_cast<int32_t>(i) : pass.from[i];
  }
}

}  // namespace detail

inline Sorted sort_keys(const SortPlan& plan, const int32_t* keys, void* workspace, galley_queue* queue) {
  int32_t* const room = static_cast<int32_t*>(workspace);  // two of keys, two of indices, counts, totals
  detail::SortPass pass = {};
  pass.keys = keys;
  pass.n = plan.n;
  pass.tiles = plan.tiles;
  pass.limit = plan.limit;
  pass.digits = 1 << plan.bits;
  pass.counts = room + 4 * plan.room();
  pass.totals = pass.counts + pass.digits * plan.tiles;
  for (int k = 0; k < plan.passes; ++k) {
    pass.to_keys = room + k % 2 * plan.room();
    pass.to_from = pass.to_keys + 2 * plan.room();
    pass.shift = k * plan.bits;
    const Grid tiles = {plan.tiles, kSortThreads};
    launch(k ? detail::sort_count<false> : detail::sort_count<true>, tiles, queue, pass);
    launch(detail::sort_offsets<kSortWarps>, {blocks_of(pass.digits, kSortWarps), kSortThreads}, queue, pass);
    launch(k ? detail::sort_scatter<false> : detail::sort_scatter<true>, tiles, queue, pass);
    pass.keys = pass.to_keys;
    pass.from = pass.to_from;
  }
  return {pass.keys, pass.from, plan.n};
}

}  // namespace galley::cuda
