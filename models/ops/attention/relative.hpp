// What distances of keys from queries add to scores: ALiBi's slopes and T5's learned biases. In a block of 64 × 64 there are 127
// distances; what they add lies in a line, along which each key begins one place before the key before it.
#pragma once

#include "ops/attention/block.hpp"

namespace galley::cpu {

class Relative {
 public:
  static constexpr int64_t line_floats = 2 * side;

  /// `buckets`: table_ints() numbers of workspace, which fill() fills before the lanes begin.
  Relative(const AttentionExtents& e, const sdk::Node& node, int32_t* buckets)
      : e_(e),
        slopes_(node.read<float>(models::attention_input::Slopes)),
        bias_(node.read<float>(models::attention_input::Bias)),
        buckets_(buckets) {}

  bool acts() const { return slopes_ || bias_; }
  /// The bucket of each distance there is.
  static int64_t table_ints(const AttentionExtents& e) { return e.buckets ? e.Sq + e.Sk - 1 : 0; }
  void fill() const {
    for (int64_t k = 0; k < table_ints(e_); ++k) buckets_[k] = static_cast<int32_t>(e_.bucket(k - (e_.Sk - 1)));
  }

  /// Adds to a block of scores; `line` is a lane's, of line_floats.
  void add(const Queries& q, int64_t key, int64_t keys, float* scores, float* line) const {
    for (int64_t x = 0; x < 2 * side - 1; ++x) {
      const int64_t distance = at(q, key, x);
      line[x] = slopes_ ? slopes_[q.head] * static_cast<float>(distance) : 0.0f;
      if (bias_) line[x] += bias_[q.head * e_.buckets + buckets_[entry(distance)]];
    }
    for (int64_t j = 0; j < keys; ++j) {
      const float* __restrict from = line + side - 1 - j;
      float* __restrict row = scores + j * side;
      for (int64_t c = 0; c < q.columns(); ++c) row[c] += from[c];
    }
  }

  /// by_distance[entry of a distance] += the sum of dS over the pairs of the block at that distance. dS is 0 where a key is not seen and
  /// in columns without a query.
  void sum(const Queries& q, int64_t key, int64_t keys, const float* ds, float* line, float* by_distance) const {
    std::fill_n(line, line_floats, 0.0f);
    for (int64_t j = 0; j < keys; ++j) {
      float* __restrict to = line + side - 1 - j;
      const float* __restrict row = ds + j * side;
      for (int64_t c = 0; c < q.columns(); ++c) to[c] += row[c];
    }
    for (int64_t x = 0; x < 2 * side - 1; ++x)
      if (const int64_t distance = at(q, key, x); distance == within(distance)) by_distance[entry(distance)] += line[x];
  }
  /// sums[bucket] = what by_distance has in it.
  void gather(const float* by_distance, float* sums) const {
    std::fill_n(sums, e_.buckets, 0.0f);
    for (int64_t k = 0; k < table_ints(e_);) {
      const int32_t bucket = buckets_[k];
      double sum = 0;
      for (; k < table_ints(e_) && buckets_[k] == bucket; ++k) sum += static_cast<double>(by_distance[k]);
      sums[bucket] += static_cast<float>(sum);
    }
  }

 private:
  // The distance at place x of a block's line.
  int64_t at(const Queries& q, int64_t key, int64_t x) const { return key - (q.first + q.shift) + side - 1 - x; }
  int64_t within(int64_t distance) const { return std::clamp(distance, 1 - e_.Sk, e_.Sq - 1); }
  int64_t entry(int64_t distance) const { return within(distance) + e_.Sk - 1; }

  const AttentionExtents& e_;
  const float *slopes_, *bias_;
  int32_t* buckets_;
};

}  // namespace galley::cpu
