// What both ways of computing attention's gradient share: in which order a block's tiles come, what it knows of queries, and the sums of
// the biases' gradient.
//
// One kernel, made twice, computes dq in blocks of queries and dk and dv in blocks of keys: `rows` are what a block keeps, `columns` what
// it goes over. So nothing is summed by two blocks, and the order of sums depends on shapes and bounds alone.
#pragma once

#include "ops/attention/cuda_variants.hpp"

namespace galley::cuda::attention {

/// The tiles of columns that a block goes over: of keys, those that its queries see; of queries, for each head of the group, those that
/// see some of its keys.
template <bool kOfKeys, int kRows, int kColumns>
class Steps {
 public:
  /// `at`: of the block. All lanes of a warp call it.
  __device__ Steps(const GradCall& call, const Piece& at) : key_(at.first) {
    const Call& a = call.a;
    if constexpr (kOfKeys) {
      const int tiles = (a.Sq + kColumns - 1) / kColumns;
      spans_ = call.spans + static_cast<int64_t>(at.b) * tiles;
      head = at.head * a.group;
      last_head_ = head + a.group - 1;
      int from = tiles, to = 0;
      for (int t = static_cast<int>(threadIdx.x) % kWarpSize; t < tiles; t += kWarpSize)
        if (meets(t)) from = smaller(from, t), to = t + 1;
      from_ = warp_reduce(from, Min());
      to_ = warp_reduce(to, Max());
    } else {
      const Span span = span_of(a, at.b, at.first, at.n);
      head = last_head_ = at.head;
      from_ = span.begin / kColumns;
      to_ = (span.end + kColumns - 1) / kColumns;
    }
    tile = from_;
    if (from_ >= to_) head = last_head_ + 1;
  }
  __device__ bool there() const { return head <= last_head_; }
  __device__ void next() {
    do {
      if (++tile < to_) continue;
      tile = from_;
      ++head;
    } while (there() && !meets(tile));
  }
  /// The first column.
  __device__ int first() const { return tile * kColumns; }
  /// Some query of the tile does not see some key of it. `span`: of the block's queries.
  __device__ bool masks(const Span& span) const {
    if constexpr (kOfKeys) return spans_[tile].masks(key_, kRows);
    else return span.masks(first(), kColumns);
  }

  int head = 0, tile = 0;

 private:
  __device__ bool meets(int t) const {
    if constexpr (kOfKeys) return spans_[t].begin < key_ + kRows && spans_[t].end > key_;
    else return true;
  }
  const Span* spans_ = nullptr;
  int key_ = 0, from_ = 0, to_ = 0, last_head_ = 0;
};

/// What a tile knows of its queries, in shared memory.
struct QueryRows {
  int32_t *first, *last;
  float *lse, *delta;
};
/// Queries after the last one, and those that see no key (lse is −∞), get an lse of ∞: all their probabilities are 0.
template <int kQ>
__device__ inline void fill_queries(const GradCall& call, int b, int head, int query, float unit, const QueryRows& to) {
  const Call& a = call.a;
#pragma unroll 1
  for (int qi = thread_again(); qi < kQ; qi += kThreads) {
    const bool there = query + qi < a.Sq;
    const Seen s = there ? seen(a, b, query + qi) : Seen{0, -1};
    const int64_t at = lse_at(a, b, head, query + qi);
    const float lse = there ? call.lse[at] : -INFINITY;
    to.first[qi] = s.first;
    to.last[qi] = s.last;
    to.lse[qi] = lse == -INFINITY ? INFINITY : unit * lse;
    to.delta[qi] = there ? call.delta[at] : 0.0f;
  }
}

/// Where the block's sums of dbias are, (buckets).
__device__ inline float* biases_of(const GradCall& call, const Piece& at, int tiles) {
  const Call& a = call.a;
  return call.biases + ((static_cast<int64_t>(at.b) * a.heads + at.head) * tiles + at.tile) * a.buckets;
}
/// Each bucket belongs to one thread, here and in add_buckets().
__device__ inline void clear_buckets(const Call& a, float* biases) {
  for (int k = thread_again(); k < a.buckets; k += kThreads) biases[k] = 0.0f;
}
/// sums[x] = the sum of ds (kQ, kStride) at a distance. Before it ds, and after it `sums`, need a barrier.
template <int kQ, int kK, int kStride>
__device__ inline void sum_distances(const float* ds, float* sums) {
  for (int x = thread_again(); x < kQ + kK - 1; x += kThreads) {
    float sum = 0.0f;
    for (int kj = larger(0, x - (kQ - 1)); kj < kK && kj <= x; ++kj) sum += ds[(kj - x + kQ - 1) * kStride + kj];
    sums[x] = sum;
  }
}
template <int kQ, int kK>
__device__ inline void add_buckets(const Call& a, int query, int key, const float* sums, float* biases) {
  // Buckets grow and shrink along a line only where it crosses distance 0, so what is one bucket's is mostly one run.
  for (int k = thread_again(); k < a.buckets; k += kThreads) {
    float sum = 0.0f;
    for (int x = 0; x < kQ + kK - 1; ++x)
      if (bucket_at<kQ>(a, query, key, x) == k) sum += sums[x];
    biases[k] += sum;
  }
}

/// Enqueues what comes before both kernels: delta, and spans of tiles of `streamed` queries.
void prepare_queries(const GradCall& c, int64_t streamed, galley_queue* queue);
/// And what comes after them: dbias from `biases`, sums of tiles of `resident` queries.
void add_biases(const GradCall& c, int64_t resident, galley_queue* queue);

}  // namespace galley::cuda::attention
