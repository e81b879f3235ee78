// Attention as op.cpp defines it, in double precision, one row of probabilities at a time: for the references, and for tests that need
// what a reference's sums are made of.
#pragma once

#include <cmath>

#include "galley/cpp/node.hpp"
#include "galley/philox.h"
#include "ops/attention/extents.hpp"

namespace galley::models {

using sdk::Node;

template <class T>
AttentionOperands<T*> attention_operands(const AttentionExtents& e, T* q, T* k, T* v) {
  return e.packed ? AttentionOperands<T*>{q, q + e.k_begin(), q + e.v_begin()} : AttentionOperands<T*>{q, k, v};
}

/// The node of either op, its operands in F64.
class AttentionDefinition {
 public:
  /// A query of a head, and the keys that it sees.
  struct Row {
    int64_t b, h, i, first, last;
    int64_t at;  ///< the key at which the query stands
  };
  explicit AttentionDefinition(const Node& n)
      : AttentionDefinition(n, n.read<double>(attention_input::K), n.read<double>(attention_input::V)) {}
  /// Of these keys and values. `start` (B): the keys at which the first queries of sequences stand; null: the last ones stand at the last
  /// key.
  AttentionDefinition(const Node& n, const double* k, const double* v, const int32_t* start = nullptr)
      : e(attention_extents(n)),
        in(attention_operands(e, n.read<double>(attention_input::Q), k, v)),
        first_key_(n.read<int32_t>(attention_input::FirstKey)),
        last_key_(n.read<int32_t>(attention_input::LastKey)),
        slopes_(n.read<double>(attention_input::Slopes)),
        bias_(n.read<double>(attention_input::Bias)),
        random_(n.read<int64_t>(attention_input::Random)),
        start_(start) {
    if (e.dropout > 0) key_ = galley_random_key(random_, n.stream());
  }
  template <class Body>
  void rows(const Body& body) const {
    for (int64_t b = 0; b < e.B; ++b)
      for (int64_t h = 0; h < e.heads; ++h)
        for (int64_t i = 0; i < e.Sq; ++i) {
          const int64_t entry = b * e.Sq + i, at = i + (start_ ? start_[b] : e.shift());
          const AttentionExtents::Seen s = e.seen(at, first_key_ ? first_key_ + entry : nullptr, last_key_ ? last_key_ + entry : nullptr);
          body(Row{b, h, i, s.first, s.last, at});
        }
  }
  const double* q(const Row& r) const { return in.q + e.q_at(r.b, r.h, r.i); }
  const double* k(const Row& r, int64_t j) const { return in.k + kv(r, j); }
  const double* v(const Row& r, int64_t j) const { return in.v + kv(r, j); }
  int64_t kv(const Row& r, int64_t j) const { return e.kv_at(r.b, r.h / e.group(), j); }
  int64_t o(const Row& r) const { return e.o_at(r.b, r.h, r.i); }
  int64_t lse(const Row& r) const { return (r.b * e.heads + r.h) * e.Sq + r.i; }
  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (int64_t d = 0; d < e.D; ++d) sum += a[d] * b[d];
    return sum;
  }
  /// From the query to key j.
  int64_t distance(const Row& r, int64_t j) const { return j - r.at; }
  /// Of the table of biases, and of its gradient.
  int64_t entry(const Row& r, int64_t j) const { return r.h * e.buckets + e.bucket(distance(r, j)); }
  struct Score {
    double value, slope;  ///< slope: by scale · q·k
  };
  Score score(const Row& r, int64_t j) const {
    Score s = {e.scale * dot(q(r), k(r, j)), 1};
    if (e.softcap > 0) {
      const double t = std::tanh(s.value / e.softcap);
      s = {e.softcap * t, 1 - t * t};
    }
    if (slopes_) s.value += slopes_[r.h] * static_cast<double>(distance(r, j));
    if (bias_) s.value += bias_[entry(r, j)];
    return s;
  }
  /// What dropout multiplies the probability of key j with.
  double kept(const Row& r, int64_t j) const {
    if (e.dropout == 0) return 1;
    const galley_philox_block block = galley_random_block(key_, random_[2] + r.b, r.i, attention_draw(r.h, j));
    return block.word[j % 4] >> 8 >= attention_threshold(e.dropout) ? 1 / (1 - e.dropout) : 0;
  }
  /// What key j gets of a query, and sends back: `lse` and `delta` = Σ do∘o are the row's, `dor` its do.
  struct Pair {
    double weight;  ///< of v, dropout included
    double ds, dx;  ///< of the score, and of q·k
  };
  Pair pair(const Row& r, int64_t j, double lse_of_row, const double* dor, double delta) const {
    const Score s = score(r, j);
    const double p = std::exp(s.value - lse_of_row), m = kept(r, j);
    // A softmax of one number is 1 whatever the number is.
    const double ds = r.first == r.last ? 0 : p * (m * dot(dor, v(r, j)) - delta);
    return {p * m, ds, e.scale * s.slope * ds};
  }

  AttentionExtents e;
  AttentionOperands<const double*> in;

 private:
  const int32_t *first_key_, *last_key_;
  const double *slopes_, *bias_;
  const int64_t* random_;
  const int32_t* start_;
  uint64_t key_ = 0;
};

}  // namespace galley::models
