// What forward and backward of blocked attention share. A block is 64 queries by 64 keys. Its scores lie transposed, keys in rows and
// queries in columns: so keys and values are read where they lie, one number at a time (tile.hpp), only queries are transposed, and a
// softmax runs down columns, 16 queries in a vector, without a sum across one.
//
// Blocks begin at multiples of 64 whatever a query sees, and are left out where none of their keys is seen; so a query's sums have one
// order, which depends on its bounds alone. In blocks on the causal diagonal, 16 keys at a time leave out the queries before them.
#pragma once

#include <cstring>

#include "cpu/lanes.hpp"
#include "galley/cpp/philox.hpp"
#include "ops/attention/rows.hpp"
#include "ops/linear/blocked.hpp"

namespace galley::cpu {

using models::AttentionExtents;
using tile::Onto;
using tile::Strided;

inline constexpr int64_t side = 64;
static_assert(side == sdk::philox_blocks);

/// Buffers cut from a lane's workspace, each on a cache line. Without a workspace it counts what they take.
class Cut {
 public:
  explicit Cut(float* begin) : begin_(begin) {}
  template <class T = float>
  T* take(int64_t n) {
    T* out = begin_ ? reinterpret_cast<T*>(begin_ + taken_) : nullptr;
    taken_ += round_up(n, 16);
    return out;
  }
  int64_t taken() const { return taken_; }

 private:
  float* begin_;
  int64_t taken_ = 0;
};

/// Up to 64 queries of one head.
struct Queries {
  int64_t b, head, first, n;  ///< sequence, query head, position of the first, how many
  int64_t shift;              ///< query i stands at key i + shift
  int64_t groups() const { return (n + tile::width - 1) / tile::width; }
  int64_t columns() const { return groups() * tile::width; }
  int64_t last() const { return first + n - 1; }
};

/// Which keys the queries of a block see. Where all is said by the causal diagonal, or nothing needs to be, a block of queries costs no
/// work here, and a block on the diagonal one fill of a triangle.
class Bounds {
 public:
  /// `first` and `last`: buffers of 64.
  Bounds(int32_t* first, int32_t* last) : first_(first), last_(last) {}

  void set(const AttentionExtents& e, const Queries& q, const int32_t* first_key, const int32_t* last_key) {
    diagonal_ = e.causal && !last_key ? q.first + q.shift : e.Sk;
    plain_ = !first_key && !last_key && e.window == 0;
    if (!plain_) return each(e, q, first_key, last_key);
    begin_ = from_ = 0;
    to_ = diagonal_;
    end_ = std::min(e.Sk, diagonal_ + q.n);
  }

  /// Blocks of keys from begin() on, a multiple of 64, to end().
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  /// Some query does not see some key of the block.
  bool masks(int64_t key, int64_t keys) const { return key < from_ || key + keys - 1 > to_; }
  /// Scores of keys that a query does not see become `value`.
  void mask(const Queries& q, int64_t key, int64_t keys, float value, float* scores) const {
    const int32_t* __restrict first = first_, * __restrict last = last_;
    for (int64_t j = 0; j < keys; ++j) {
      float* __restrict row = scores + j * side;
      if (plain_) {
        std::fill_n(row, std::clamp<int64_t>(key + j - diagonal_, 0, q.columns()), value);
        continue;
      }
      const int32_t at = static_cast<int32_t>(key + j);
      for (int64_t c = 0; c < q.columns(); ++c) row[c] = (at >= first[c]) & (at <= last[c]) ? row[c] : value;
    }
  }
  /// Scores of queries that see one key only become 0: a softmax of one number is 1 whatever the number is, so its gradient is exactly 0,
  /// and what two sums of the same products leave would be noise in its place.
  void clear_alone(int64_t key, int64_t keys, float* scores) const {
    if (plain_) {
      if (key == 0 && end_ == 1) std::fill_n(scores, side, 0.0f);
      else if (key == 0 && diagonal_ <= 0 && -diagonal_ < side) scores[-diagonal_] = 0;  // with fewer keys than queries, a later one
      return;
    }
    for (int64_t c = 0; alone_ && c < side; ++c)
      if (first_[c] == last_[c] && first_[c] >= key && first_[c] < key + keys) scores[(first_[c] - key) * side + c] = 0;
  }
  /// body(key, keys, group): all keys of a block and all groups of queries; on the diagonal 16 keys and the groups from the one on that
  /// sees the first of them.
  template <class Body>
  void parts(int64_t key, int64_t keys, const Body& body) const {
    if (key + keys - 1 <= diagonal_) return body(int64_t{0}, keys, int64_t{0});
    for (int64_t j = 0; j < keys; j += tile::width)
      body(j, std::min(tile::width, keys - j), std::max<int64_t>(0, key + j - diagonal_) / tile::width);
  }

 private:
  void each(const AttentionExtents& e, const Queries& q, const int32_t* first_key, const int32_t* last_key) {
    begin_ = e.Sk;
    end_ = from_ = 0;
    to_ = e.Sk - 1;
    alone_ = false;
    std::fill(first_ + q.columns(), first_ + side, -1), std::fill(last_ + q.columns(), last_ + side, -1);
    for (int64_t c = 0; c < q.columns(); ++c) {  // beyond the last query: as the last one
      const int64_t i = std::min(q.first + c, q.last()), at = q.b * e.Sq + i;
      const AttentionExtents::Seen seen = e.seen(i + q.shift, first_key ? first_key + at : nullptr, last_key ? last_key + at : nullptr);
      first_[c] = static_cast<int32_t>(seen.first);
      last_[c] = static_cast<int32_t>(seen.last);
      from_ = std::max(from_, seen.first);
      to_ = std::min(to_, seen.last);
      alone_ |= seen.first == seen.last;
      if (seen.first > seen.last) continue;
      begin_ = std::min(begin_, seen.first);
      end_ = std::max(end_, seen.last + 1);
    }
    begin_ = begin_ / side * side;
  }

  int32_t *first_, *last_;
  int64_t begin_ = 0, end_ = 0;
  int64_t from_ = 0, to_ = 0;          // keys that every query sees
  int64_t diagonal_ = 0;               // the first query sees no key after this one, the next query one more
  bool plain_ = true, alone_ = false;  // alone_: some query sees one key only
};

/// out[j][c] = Σ_d rows[j][d] · columns[d][c], where a query of column c may see the key of row j.
inline void scores(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, int64_t D, const Rows& rows, const float* columns,
                   float* out) {
  bounds.parts(key, keys, [&](int64_t j, int64_t n, int64_t g) {
    tile::product(n, q.groups() - g, D, Strided{rows.data + j * rows.row, rows.row, 1}, columns + g * tile::width, side,
                  out + j * side + g * tile::width, side, Onto::Write);
  });
}

/// out[d][c] += Σ_j rows[j][d] · weights[j][c].
inline void combine(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, int64_t D, const Rows& rows, const float* weights,
                    float* out) {
  bounds.parts(key, keys, [&](int64_t j, int64_t n, int64_t g) {
    tile::product(D, q.groups() - g, n, Strided{rows.data + j * rows.row, 1, rows.row}, weights + j * side + g * tile::width, side,
                  out + g * tile::width, side, Onto::Add);
  });
}

/// to[d][c] = factor · from[c][d]; columns without a query are 0.
inline void load_columns(const Queries& q, int64_t D, const Rows& from, float factor, float* to) {
  transpose(from.data, from.row, q.n, D, to, side);
  for (int64_t d = 0; d < D; ++d) {
    for (int64_t c = q.n; c < q.columns(); ++c) to[d * side + c] = 0;
    for (int64_t c = 0; c < q.n; ++c) to[d * side + c] *= factor;
  }
}

/// to[c][d] = from[d][c], through `buffer` (n, D) where `to` has 16 bits.
inline void store_columns(const Queries& q, int64_t D, const float* from, const Numbers& to, int64_t row, float* buffer) {
  if (to.is_f32()) return transpose(from, side, D, q.n, to.f32(), row);
  transpose(from, side, D, q.n, buffer, D);
  store_rows(buffer, D, q.n, D, to, row);
}

/// Dropout of a block of probabilities: what each is multiplied with, (keys, 64). The 64 positions of a key draw from Philox blocks side by
/// side, in vectors: GPT-2, 1 x 512, one thread, forward 4.6 ms and backward 9.1 ms, against 5.7 and 10.1 ms one block at a time.
class Dropout {
 public:
  Dropout(const AttentionExtents& e, const int64_t* random, uint64_t stream)
      : threshold_(models::attention_threshold(e.dropout)), factor_(static_cast<float>(1 / (1 - e.dropout))) {
    if (e.dropout > 0) key_ = galley_random_key(random, stream), first_row_ = random[2];
  }
  bool acts() const { return threshold_ > 0; }
  void fill(const Queries& q, int64_t key, int64_t keys, float* __restrict factors) const {
    const uint64_t first = static_cast<uint64_t>(first_row_ + q.b) << 32 | static_cast<uint64_t>(q.first);
    const uint32_t threshold = threshold_;
    const float factor = factor_;
    for (int64_t j = 0; j < keys; j += 4) {
      uint32_t words[4][sdk::philox_blocks];
      sdk::philox_along(key_, static_cast<uint64_t>(models::attention_draw(q.head, key + j)), first, words);
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
