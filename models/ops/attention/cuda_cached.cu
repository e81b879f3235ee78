// cached_attention on CUDA (op.cpp has the definition): few queries, many keys. A block of four warps takes one query of one head. Its
// warps take keys in turn; a warp's lanes hold the head's numbers side by side, D / 32 each, so that a row of keys or of values is read at
// once. Each warp has a running maximum and sum (Milakov and Gimelshein, arXiv:1805.02867), joined in the order of the warps at the end:
// the same bytes in every run. Bound by the memory of keys and values. Heads of up to 256 numbers. Codes of a cache in 8 bit become numbers
// where they are read.
#include "ops/attention/cuda_call.hpp"
#include "ops/cache/coded.hpp"

namespace galley::cuda::attention {
namespace {

using namespace models;
using namespace models::attention_input;

constexpr int kCachedWarps = kThreads / kWarpSize, kMostD = 256;

/// Keys or values, by position (of all sequences) and column: numbers as they lie, and codes with scales.
struct PlainCache {
  Reader numbers;
  int64_t columns = 0;
  PlainCache() = default;
  PlainCache(const Node& node, uint32_t input, uint32_t) : numbers(node, input), columns(sdk::columns(node.in(input))) {}
  __device__ float at(int64_t position, int column) const { return numbers.at(position * columns + column); }
};
struct CodedCache {
  const int8_t* codes = nullptr;
  const Bf16* scales = nullptr;
  int64_t columns = 0, blocks = 0;
  CodedCache() = default;
  CodedCache(const Node& node, uint32_t input, uint32_t of_scales)
      : codes(node.read<int8_t>(input)),
        scales(node.read<Bf16>(of_scales)),
        columns(sdk::columns(node.in(input))),
        blocks(coded_cache::blocks(columns)) {}
  __device__ float at(int64_t position, int column) const {
    const uint16_t scale = scales[position * blocks + column / static_cast<int>(coded_cache::kBlock)].bits;
    return coded_cache::unit(scale) * static_cast<float>(codes[position * columns + column]);
  }
};

template <class Cache>
struct CachedCall {
  Call a;
  const int32_t* start = nullptr;
  Reader q;
  Cache k, v;
  Writer o;
  float* lse = nullptr;
};

template <int kOwn, class Cache>
__global__ void __launch_bounds__(kThreads, 4) cached_queries(CachedCall<Cache> call) {
  const Call& a = call.a;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int i = static_cast<int>(blockIdx.x) % a.Sq, head = static_cast<int>(blockIdx.x) / a.Sq % a.heads;
  const int b = static_cast<int>(blockIdx.x) / a.Sq / a.heads, column = head / a.group * a.D + lane;
  const int at = call.start[b] + i;
  const int64_t entry = static_cast<int64_t>(b) * a.Sq + i;
  int first = a.first_key ? larger(a.first_key[entry], 0) : 0, last = smaller(a.last_key ? a.last_key[entry] : at, a.Sk - 1);
  if (a.window > 0) first = larger(first, at - a.window + 1);

  float q[kOwn], o[kOwn];
#pragma unroll
  for (int c = 0; c < kOwn; ++c) {
    const int d = lane + c * kWarpSize;
    q[c] = d < a.D ? a.scale * call.q.at(q_at(a, b, head, i) + d) : 0.0f;
    o[c] = 0.0f;
  }
  float largest = kLowest, sum = 0.0f;
  for (int j = first + warp; j <= last; j += kCachedWarps) {
    const int64_t position = static_cast<int64_t>(b) * a.Sk + j;
    float score = 0.0f;
#pragma unroll
    for (int c = 0; c < kOwn; ++c)
      if (lane + c * kWarpSize < a.D) score += q[c] * call.k.at(position, column + c * kWarpSize);
    score = warp_sum(score);
    if (a.softcap > 0.0f) score = a.softcap * tanhf(score / a.softcap);
    if (a.slopes) score += a.slopes[head] * static_cast<float>(j - at);
    if (a.bias) {
      const int distance = larger(-a.reach, smaller(j - at, a.reach));
      score += a.bias[static_cast<int64_t>(head) * a.buckets + a.bucket[distance + a.reach]];
    }
    const float before = largest;
    largest = fmaxf(largest, score);
    const float shrink = expf(before - largest), weight = expf(score - largest);
    sum = sum * shrink + weight;
#pragma unroll
    for (int c = 0; c < kOwn; ++c)
      if (lane + c * kWarpSize < a.D) o[c] = o[c] * shrink + weight * call.v.at(position, column + c * kWarpSize);
  }

  GALLEY_SHARED(float, of_warps, kCachedWarps*(kMostD + 2));
  float* const mine = of_warps + warp * (kMostD + 2);
#pragma unroll
  for (int c = 0; c < kOwn; ++c) mine[lane + c * kWarpSize] = o[c];
  if (lane == 0) mine[kMostD] = largest, mine[kMostD + 1] = sum;
  __syncthreads();
  float most = kLowest, all = 0.0f;
  for (int w = 0; w < kCachedWarps; ++w) most = fmaxf(most, of_warps[w * (kMostD + 2) + kMostD]);
  for (int w = 0; w < kCachedWarps; ++w) all += of_warps[w * (kMostD + 2) + kMostD + 1] * expf(of_warps[w * (kMostD + 2) + kMostD] - most);
  for (int d = static_cast<int>(threadIdx.x); d < a.D; d += kThreads) {
    float x = 0.0f;
    for (int w = 0; w < kCachedWarps; ++w) x += of_warps[w * (kMostD + 2) + d] * expf(of_warps[w * (kMostD + 2) + kMostD] - most);
    call.o.put(o_at(a, b, head, i) + d, all == 0.0f ? 0.0f : x / all);
  }
  if (threadIdx.x == 0) call.lse[lse_at(a, b, head, i)] = all == 0.0f ? -INFINITY : most + logf(all);
}

template <class Cache>
class Cached {
 public:
  static void query(const Node& node, const galley_target&, galley_kernel_plan& plan) {
    const AttentionExtents e = attention_extents(node);
    if (e.D > kMostD) unsupported("heads of up to 256 numbers only");
    for (const uint32_t scales : {KScales, VScales})
      if (node.has(scales) != std::is_same_v<Cache, CodedCache>) unsupported("keys and values as they are, or both in 8 bit");
    plan.constants_bytes = constant_bytes(e);
  }
  Cached(const Node& node, const galley_kernel_setup& setup) {
    const AttentionExtents e = attention_extents(node);
    upload_buckets(e, setup);
    call_.a = call_of(node, e, setup.constants);
    call_.a.random = nullptr;
    call_.start = node.read<int32_t>(Start);
    call_.q = Reader(node, Q), call_.k = Cache(node, K, KScales), call_.v = Cache(node, V, VScales);
    call_.o = Writer(node, 0);
    call_.lse = node.write<float>(1);
  }
  void run(galley_queue* queue) const {
    const Call& a = call_.a;
    const int64_t blocks = static_cast<int64_t>(a.B) * a.heads * a.Sq;
    if (a.D <= 64) launch(cached_queries<2, Cache>, {blocks, kThreads}, queue, call_);
    else if (a.D <= 128) launch(cached_queries<4, Cache>, {blocks, kThreads}, queue, call_);
    else launch(cached_queries<8, Cache>, {blocks, kThreads}, queue, call_);
  }

 private:
  CachedCall<Cache> call_;
};

const bool cached_added = add(kernel_of<Cached<PlainCache>>("cached_attention.cuda", "cached_attention")) &&
                          add(kernel_of<Cached<CodedCache>>("cached_attention.cuda_int8", "cached_attention"));

}  // namespace
}  // namespace galley::cuda::attention
