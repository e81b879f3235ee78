// What all CUDA kernels of attention share: the call as they get it, which keys a query sees, and what a tile of queries and keys needs
// beside q, k and v: what distances add to scores, and which probabilities dropout keeps.
//
// A tile is some queries by some keys of one head. In it `qi` and `kj` number queries and keys from 0.
#pragma once

#include "galley/cuda/kernel.hpp"
#include "galley/cuda/reduce.hpp"
#include "galley/philox.h"
#include "ops/attention/extents.hpp"

namespace galley::cuda::attention {

using models::AttentionExtents;

/// Threads of a block, in all kernels.
inline constexpr int kThreads = 128;

inline constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.6931471805599453;

/// A maximum before any score: finite, so that e^(−∞ − lowest) is 0 and e^(lowest − lowest) is 1.
inline constexpr float kLowest = -1e30f;

struct Call {
  const int32_t *first_key = nullptr, *last_key = nullptr;  // (B, Sq)
  const float *slopes = nullptr, *bias = nullptr;           // (heads), (heads, buckets)
  const int32_t* bucket = nullptr;  // (2·reach + 1): of the distances −reach … reach; it is the same beyond them
  const int64_t* random = nullptr;
  uint64_t stream = 0;
  int64_t q_row = 0, kv_row = 0, o_row = 0;  // distances of rows
  int64_t q_head = 0, kv_head = 0;           // of heads in a row of q, and of k and v; those of o lie side by side
  int32_t B = 0, Sq = 0, Sk = 0, heads = 0, group = 0, D = 0, window = 0, reach = 0, buckets = 0;
  uint32_t threshold = 0;  // of dropout; 0: none
  float scale = 0, softcap = 0, kept = 1;
  float exponent = 0, cap_exponent = 0;  // for powers of 2: scale·log₂e, or scale / softcap where there is one; softcap·log₂e
  bool causal = false;

  __device__ int shift() const { return Sk - Sq; }
  __device__ bool relative() const { return slopes || bias; }
};

// ---- On the host ----------------------------------------------------------------------------------------------------------------------

inline int64_t reach_of(const AttentionExtents& e) { return std::min(e.max_distance, std::max(e.Sq, e.Sk)); }
inline int64_t constant_bytes(const AttentionExtents& e) { return e.buckets ? (2 * reach_of(e) + 1) * 4 : 0; }

/// Fills the constants: the table of buckets.
inline void upload_buckets(const AttentionExtents& e, const galley_kernel_setup& setup) {
  if (!e.buckets) return;
  const int64_t reach = reach_of(e);
  std::vector<int32_t> table;
  for (int64_t d = -reach; d <= reach; ++d) table.push_back(static_cast<int32_t>(e.bucket(d)));
  upload(setup, setup.constants, table.data(), table.size() * sizeof(int32_t));
}

/// `n` numbers after what a reader or a writer begins with.
template <class Operand>
Operand after(Operand x, int64_t n) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(x.data)>>, const char, char>;
  if (x.there()) x.data = static_cast<Byte*>(x.data) + n * galley_dtype_bytes(x.dtype);
  return x;
}
/// q, k and v, or their gradients; packed, the first operand has all three.
template <class Operand>
models::AttentionOperands<Operand> parts(const AttentionExtents& e, const Operand& q, const Operand& k, const Operand& v) {
  if (!e.packed) return {q, k, v};
  return {q, after(q, e.k_begin()), after(q, e.v_begin())};
}

inline Call call_of(const Node& n, const AttentionExtents& e, const void* constants) {
  using namespace models::attention_input;
  const auto i32 = [](int64_t x) { return static_cast<int32_t>(x); };
  Call c;
  c.first_key = n.read<int32_t>(FirstKey), c.last_key = n.read<int32_t>(LastKey);
  c.slopes = n.read<float>(Slopes), c.bias = n.read<float>(Bias);
  c.bucket = static_cast<const int32_t*>(constants);
  c.random = n.read<int64_t>(Random);
  c.stream = n.stream();
  c.q_row = e.q_row(), c.kv_row = e.kv_row(), c.o_row = e.q_columns();
  c.q_head = e.q_head(), c.kv_head = e.kv_head();
  c.B = i32(e.B), c.Sq = i32(e.Sq), c.Sk = i32(e.Sk), c.heads = i32(e.heads), c.group = i32(e.group()), c.D = i32(e.D);
  c.window = i32(std::min(e.window, e.Sq + e.Sk)), c.reach = i32(e.buckets ? reach_of(e) : 0), c.buckets = i32(e.buckets);
  c.threshold = models::attention_threshold(e.dropout);
  c.scale = static_cast<float>(e.scale), c.softcap = static_cast<float>(e.softcap), c.kept = static_cast<float>(1 / (1 - e.dropout));
  c.exponent = static_cast<float>(e.scale * (e.softcap > 0 ? 1 / e.softcap : kLog2e)),
  c.cap_exponent = static_cast<float>(e.softcap * kLog2e);
  c.causal = e.causal;
  return c;
}

// ---- Which keys are seen --------------------------------------------------------------------------------------------------------------

__device__ inline int smaller(int a, int b) { return a < b ? a : b; }
__device__ inline int larger(int a, int b) { return a > b ? a : b; }

struct Min {
  __device__ int operator()(int a, int b) const { return smaller(a, b); }
};

struct Seen {
  int first, last;
};
/// AttentionExtents::seen().
__device__ inline Seen seen(const Call& a, int b, int i) {
  const int at = i + a.shift();
  const int64_t entry = static_cast<int64_t>(b) * a.Sq + i;
  Seen s = {a.first_key ? a.first_key[entry] : 0, a.last_key ? a.last_key[entry] : a.causal ? at : a.Sk - 1};
  if (a.window > 0) {
    s.first = larger(s.first, at - a.window + 1);
    if (!a.causal) s.last = smaller(s.last, at + a.window - 1);
  }
  return {larger(s.first, 0), smaller(s.last, a.Sk - 1)};
}

/// What some queries see: none of them a key outside of begin … end − 1, all of them the keys from … to.
struct Span {
  int begin, end, from, to;
  __device__ bool masks(int key, int keys) const { return key < from || key + keys - 1 > to; }
};
/// Of the queries query … query + n − 1. All lanes of a warp call it.
__device__ inline Span span_of(const Call& a, int b, int query, int n) {
  Span s = {a.Sk, 0, 0, a.Sk - 1};
  for (int i = static_cast<int>(threadIdx.x) % kWarpSize; i < n; i += kWarpSize) {
    const Seen x = seen(a, b, query + i);
    s.from = larger(s.from, x.first);
    s.to = smaller(s.to, x.last);
    if (x.first > x.last) continue;
    s.begin = smaller(s.begin, x.first);
    s.end = larger(s.end, x.last + 1);
  }
  return {warp_reduce(s.begin, Min()), warp_reduce(s.end, Max()), warp_reduce(s.from, Max()), warp_reduce(s.to, Min())};
}

// ---- Where a tile's numbers are -------------------------------------------------------------------------------------------------------

/// A block of threads takes `size` queries of a head, or keys of a key head. Heads are dealt first: those of a group, which read the same
/// keys, run beside each other. Tiles that see the most go first, so that what is left at the end is short.
struct Piece {
  int b, head, tile, first, n;
};
__device__ inline Piece piece_of_queries(const Call& a, int size) {
  const int all = a.B * a.heads, tiles = (a.Sq + size - 1) / size;
  const int which = static_cast<int>(blockIdx.x) % all, tile = tiles - 1 - static_cast<int>(blockIdx.x) / all;
  return {which / a.heads, which % a.heads, tile, tile * size, smaller(size, a.Sq - tile * size)};
}
__device__ inline Piece piece_of_keys(const Call& a, int size) {
  const int kv_heads = a.heads / a.group, all = a.B * kv_heads;
  const int which = static_cast<int>(blockIdx.x) % all, tile = static_cast<int>(blockIdx.x) / all;
  return {which / kv_heads, which % kv_heads, tile, tile * size, smaller(size, a.Sk - tile * size)};
}
/// Indices of a head's first number at a position: in q, in k and v, in o, in lse.
__device__ inline int64_t q_at(const Call& a, int b, int head, int i) {
  return (static_cast<int64_t>(b) * a.Sq + i) * a.q_row + head * a.q_head;
}
__device__ inline int64_t kv_at(const Call& a, int b, int kv_head, int j) {
  return (static_cast<int64_t>(b) * a.Sk + j) * a.kv_row + kv_head * a.kv_head;
}
__device__ inline int64_t o_at(const Call& a, int b, int head, int i) {
  return (static_cast<int64_t>(b) * a.Sq + i) * a.o_row + static_cast<int64_t>(head) * a.D;
}
__device__ inline int64_t lse_at(const Call& a, int b, int head, int i) { return (static_cast<int64_t>(b) * a.heads + head) * a.Sq + i; }

/// to[at … at + n − 1] = x, n ≤ kWide numbers side by side.
template <class T, int kWide>
__device__ inline void store_some(T* to, int n, const float (&x)[kWide]) {
  if (n >= kWide && reinterpret_cast<uintptr_t>(to) % (sizeof(T) * kWide) == 0) {
    Vector<T, kWide> v;
#pragma unroll
    for (int c = 0; c < kWide; ++c) narrow(x[c], v.at[c]);
    store_vector<T, kWide>(to, v);
  } else {
#pragma unroll
    for (int c = 0; c < kWide; ++c)
      if (c < n) narrow(x[c], to[c]);
  }
}
template <int kWide>
__device__ inline void store_some(const Writer& to, int64_t at, int n, const float (&x)[kWide]) {
  if (to.dtype == GALLEY_BF16) store_some(static_cast<Bf16*>(to.data) + at, n, x);
  else if (to.dtype == GALLEY_F16) store_some(static_cast<F16*>(to.data) + at, n, x);
  else store_some(static_cast<float*>(to.data) + at, n, x);
}
/// threadIdx.x, read again: so what loading a tile computes from it is not kept in registers while the tile before it is computed with.
__device__ inline int thread_again() {
#if GALLEY_CUDA_EMULATED
  return static_cast<int>(threadIdx.x);
#else
  unsigned x;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
  return static_cast<int>(x & (kThreads - 1));  // as the compiler knows of threadIdx.x
#endif
}

// ---- Distances ------------------------------------------------------------------------------------------------------------------------

/// Tiles of kQ queries by kK keys have kQ + kK − 1 distances; what belongs to them lies in a line, at this place for a query and a key.
template <int kQ>
__device__ inline int on_line(int qi, int kj) {
  return kj - qi + kQ - 1;
}
/// The bucket of the pairs at a place of the line.
template <int kQ>
__device__ inline int bucket_at(const Call& a, int query, int key, int x) {
  const int distance = key - (query + a.shift()) + x - (kQ - 1);
  return a.bucket[larger(-a.reach, smaller(distance, a.reach)) + a.reach];
}
/// line[x] = unit · what the distance adds to a score. Nothing where distances add nothing.
template <int kQ, int kK>
__device__ inline void fill_line(const Call& a, int head, int query, int key, float unit, float* line) {
  if (!a.relative()) return;
#pragma unroll 1
  for (int x = thread_again(); x < kQ + kK - 1; x += kThreads) {
    const int distance = key - (query + a.shift()) + x - (kQ - 1);
    float sum = a.slopes ? a.slopes[head] * static_cast<float>(distance) : 0.0f;
    if (a.bias) sum += a.bias[static_cast<int64_t>(head) * a.buckets + bucket_at<kQ>(a, query, key, x)];
    line[x] = unit * sum;
  }
}

// ---- Dropout --------------------------------------------------------------------------------------------------------------------------

/// Which probabilities of a tile are kept: a bit for each key, four keys in a byte, as they are drawn. `key` is a multiple of 4.
template <int kQ, int kK>
__device__ inline void fill_kept(const Call& a, int b, int head, int query, int key, uint8_t* kept) {
  if (!a.threshold) return;
  const uint64_t random_key = galley_random_key(a.random, a.stream);  // again for each tile: kept, it would take registers everywhere
  const int64_t row = a.random[2] + b;
#pragma unroll 1
  for (int x = thread_again(); x < kQ * kK / 4; x += kThreads) {
    const int qi = x / (kK / 4), four = x % (kK / 4);
    const int64_t draw = static_cast<int64_t>(head) << 32 | (key / 4 + four);  // attention_draw()
    const galley_philox_block block = galley_random_block(random_key, row, query + qi, draw);
    const auto bit = [&](uint32_t word) { return word >> 8 >= a.threshold ? 1u : 0u; };  // no loop: GCC 12 spoils it under UBSan
    const unsigned bits = bit(block.word[0]) | bit(block.word[1]) << 1 | bit(block.word[2]) << 2 | bit(block.word[3]) << 3;
    kept[x] = static_cast<uint8_t>(bits);
  }
}
/// What a probability is multiplied with.
template <int kK>
__device__ inline float kept_of(const Call& a, const uint8_t* kept, int qi, int kj) {
  return kept[qi * (kK / 4) + kj / 4] >> kj % 4 & 1 ? a.kept : 0.0f;
}

}  // namespace galley::cuda::attention
