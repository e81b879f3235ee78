// What forward and backward of blocked attention share. A block is 64 queries by 64 keys. Its scores lie transposed, keys in rows and
// queries in columns: so keys and values are read where they lie, one number at a time (tile.hpp), only queries are transposed, and a
// softmax runs down columns, 16 queries in a vector, without a sum across one.
//
// Blocks begin at multiples of 64 whatever a query sees, and are left out where none of their keys is seen; so a query's sums have one
// order, which depends on S, the window and the documents alone. In the block on the diagonal, 16 keys at a time leave out the queries
// before them.
#pragma once

#include <cstring>

#include "cpu/lanes.hpp"
#include "cpu/vector.hpp"
#include "ops/attention/extents.hpp"
#include "ops/linear/blocked.hpp"

namespace galley::cpu {

using models::AttentionExtents;
using tile::Onto;
using tile::Strided;

inline constexpr int64_t side = 64;

/// Buffers cut from a lane's workspace, each on a cache line.
class Cut {
 public:
  explicit Cut(float* at) : at_(at) {}
  template <class T = float>
  T* take(int64_t n) {
    T* out = reinterpret_cast<T*>(at_);
    at_ += round_up(n, 16);
    return out;
  }

 private:
  float* at_;
};

/// Up to 64 queries of one head.
struct Queries {
  int64_t b, head, first, n;  ///< sequence, query head, position of the first, how many
  int64_t groups() const { return (n + tile::width - 1) / tile::width; }
  int64_t columns() const { return groups() * tile::width; }
  int64_t last() const { return first + n - 1; }
};

/// The keys each query sees, and over all: from where blocks begin, and from which key on every query sees what is causal.
struct Bounds {
  int32_t *first, *last;
  int64_t begin, common;

  void fill(const AttentionExtents& e, const Queries& q, const int32_t* first_key) {
    begin = q.last();
    common = 0;
    for (int64_t c = 0; c < q.columns(); ++c) {  // beyond the last query: as the last one
      const int64_t i = std::min(q.first + c, q.last()), from = e.first(i, first_key[q.b * e.S + i]);
      first[c] = static_cast<int32_t>(from);
      last[c] = static_cast<int32_t>(i);
      begin = std::min(begin, from);
      common = std::max(common, from);
    }
    begin = begin / side * side;
  }
  /// Some query does not see some key of the block.
  bool masks(const Queries& q, int64_t key, int64_t keys) const { return key < common || key + keys - 1 > q.first; }
  /// Scores of keys that a query does not see become `value`.
  void mask(const Queries& q, int64_t key, int64_t keys, float value, float* scores) const {
    const int32_t* __restrict from = first, * __restrict to = last;
    for (int64_t j = 0; j < keys; ++j) {
      const int32_t at = static_cast<int32_t>(key + j);
      float* __restrict row = scores + j * side;
      for (int64_t c = 0; c < q.columns(); ++c) row[c] = (at >= from[c]) & (at <= to[c]) ? row[c] : value;
    }
  }
};

/// body(key, keys, group): all keys of a block and all groups of queries; on the diagonal 16 keys and the groups from the one they begin
/// in.
template <class Body>
inline void seen(const Queries& q, int64_t key, int64_t keys, const Body& body) {
  if (key < q.first) return body(int64_t{0}, keys, int64_t{0});
  for (int64_t j = 0; j < keys; j += tile::width) body(j, std::min(tile::width, keys - j), j / tile::width);
}

/// out[j][c] = Σ_d rows[j][d] · columns[d][c], where a query of column c may see the key of row j.
inline void scores(const Queries& q, int64_t key, int64_t keys, int64_t D, const float* rows, int64_t row, const float* columns,
                   float* out) {
  seen(q, key, keys, [&](int64_t j, int64_t n, int64_t g) {
    tile::product(n, q.groups() - g, D, Strided{rows + j * row, row, 1}, columns + g * tile::width, side, out + j * side + g * tile::width,
                  side, Onto::Write);
  });
}

/// out[d][c] += Σ_j rows[j][d] · weights[j][c].
inline void combine(const Queries& q, int64_t key, int64_t keys, int64_t D, const float* rows, int64_t row, const float* weights,
                    float* out) {
  seen(q, key, keys, [&](int64_t j, int64_t n, int64_t g) {
    tile::product(D, q.groups() - g, n, Strided{rows + j * row, 1, row}, weights + j * side + g * tile::width, side, out + g * tile::width,
                  side, Onto::Add);
  });
}

/// to[d][c] = factor · from[c][d]; columns without a query are 0.
inline void load_columns(const Queries& q, int64_t D, const float* from, int64_t row, float factor, float* to) {
  transpose(from, row, q.n, D, to, side);
  for (int64_t d = 0; d < D; ++d) {
    for (int64_t c = q.n; c < q.columns(); ++c) to[d * side + c] = 0;
    for (int64_t c = 0; c < q.n; ++c) to[d * side + c] *= factor;
  }
}

/// Dropout of a block of probabilities: what each is multiplied with, (keys, 64).
class Dropout {
 public:
  Dropout(const AttentionExtents& e, const int64_t* random, uint64_t stream)
      : threshold_(models::attention_threshold(e.dropout)), factor_(static_cast<float>(1 / (1 - e.dropout))) {
    if (e.dropout > 0) key_ = galley_random_key(random, stream), first_row_ = random[2];
  }
  bool acts() const { return threshold_ > 0; }
  void fill(const Queries& q, int64_t key, int64_t keys, float* __restrict factors) const {
    const uint64_t random_key = key_;
    const int64_t row = first_row_ + q.b, position = q.first;
    const uint32_t threshold = threshold_;
    const float factor = factor_;
    for (int64_t j = 0; j < keys; j += 4) {
      uint32_t words[4][side];
      const int64_t block = models::attention_draw(q.head, key + j);
      for (int64_t c = 0; c < side; ++c) {
        const galley_philox_block drawn = galley_random_block(random_key, row, position + c, block);
        for (int k = 0; k < 4; ++k) words[k][c] = drawn.word[k];
      }
      for (int64_t k = 0; k < 4; ++k)
        for (int64_t c = 0; c < side; ++c) factors[(j + k) * side + c] = words[k][c] >> 8 >= threshold ? factor : 0.0f;
    }
  }

 private:
  uint32_t threshold_;
  float factor_;
  uint64_t key_ = 0;
  int64_t first_row_ = 0;
};

}  // namespace galley::cpu
