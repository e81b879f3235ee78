// What attention's nodes say about themselves: extents, where heads lie in their operands, which keys a query sees, what is added to a
// score for its distance, what dropout draws.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "ops/check.hpp"

namespace galley::models {

/// Inputs of both ops; attention_grad goes on after `Random`, where cached_attention has `Start` and what follows it.
namespace attention_input {
enum : uint32_t { Q, K, V, FirstKey, LastKey, Slopes, Bias, Random, O, Lse, DO, Start = Random, KScales, VScales };
}
/// Outputs of attention_grad. DBias is there where the attribute "dbias" asks for it.
namespace attention_output {
enum : uint32_t { DQ, DK, DV, DBias };
}

/// q (B, Sq, heads·D), k and v (B, Sk, kv_heads·D); packed: one operand (B, S, (heads + 2·kv_heads)·D) that holds q, then k, then
/// v, or, by_head, (B, S, heads, 3, D): q, k and v of each head.
struct AttentionExtents {
  int64_t B, Sq, Sk, heads, kv_heads, D;
  bool packed, by_head, causal;
  double scale, softcap;  ///< softcap 0: none
  int64_t window;         ///< 0: none
  double dropout;         ///< 0 outside training
  int64_t buckets;        ///< of the table of biases; 0: there is none
  int64_t max_distance;
  bool bidirectional;

  int64_t group() const { return heads / kv_heads; }
  int64_t q_columns() const { return heads * D; }
  int64_t kv_columns() const { return kv_heads * D; }
  /// Distance of rows of q, and of k and v.
  int64_t q_row() const { return packed ? q_columns() + 2 * kv_columns() : q_columns(); }
  int64_t kv_row() const { return packed ? q_row() : kv_columns(); }
  /// Distance of heads in a row of q, and of k and v; those of o lie side by side.
  int64_t q_head() const { return by_head ? 3 * D : D; }
  int64_t kv_head() const { return q_head(); }
  /// Of a packed row: where the first heads of k and of v begin.
  int64_t k_begin() const { return by_head ? D : q_columns(); }
  int64_t v_begin() const { return by_head ? 2 * D : q_columns() + kv_columns(); }
  /// The numbers before a head at a position: in q, of query head h; in k and v, of key head h, after k_begin() and v_begin(); in o.
  int64_t q_at(int64_t b, int64_t h, int64_t i) const { return (b * Sq + i) * q_row() + h * q_head(); }
  int64_t kv_at(int64_t b, int64_t h, int64_t j) const { return (b * Sk + j) * kv_row() + h * kv_head(); }
  int64_t o_at(int64_t b, int64_t h, int64_t i) const { return (b * Sq + i) * q_columns() + h * D; }

  /// Query i stands at key i + shift(): the last query at the last key. (Those of cached_attention stand where its input `start` says.)
  int64_t shift() const { return Sk - Sq; }
  /// The keys first … last, of those there are; none where first > last.
  struct Seen {
    int64_t first, last;
  };
  /// What the query at key `at` sees, given its entries of first_key and last_key; null: there is no such input.
  Seen seen(int64_t at, const int32_t* first_key, const int32_t* last_key) const {
    Seen s = {first_key ? *first_key : 0, last_key ? *last_key : causal ? at : Sk - 1};
    if (window > 0) {
      s.first = std::max(s.first, at - window + 1);
      if (!causal) s.last = std::min(s.last, at + window - 1);
    }
    return {std::max<int64_t>(s.first, 0), std::min(s.last, Sk - 1)};
  }
  /// Pairs of a query and a key that it sees, for one head of one sequence without first_key and last_key.
  double pairs() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < Sq; ++i) {
      const Seen s = seen(i + shift(), nullptr, nullptr);
      sum += std::max<int64_t>(s.last - s.first + 1, 0);
    }
    return static_cast<double>(sum);
  }

  /// The bucket of a key at `distance` from the query (T5, Raffel et al., arXiv:1910.10683), rounded as transformers does in F32: half of
  /// the buckets for a distance each, the others for ranges that grow up to max_distance.
  int64_t bucket(int64_t distance) const {
    int64_t n = buckets, side = 0;
    if (bidirectional) {
      n /= 2;
      if (distance > 0) side = n;
      distance = std::abs(distance);
    } else {
      distance = std::max<int64_t>(-distance, 0);
    }
    const int64_t exact = n / 2;
    if (distance < exact) return side + distance;
    if (distance >= max_distance) return side + n - 1;
    // Logarithms in double, then rounded: the same on every machine.
    const auto log = [](float x) { return static_cast<float>(std::log(static_cast<double>(x))); };
    const float ratio = static_cast<float>(distance) / static_cast<float>(exact);
    const float most = static_cast<float>(std::log(static_cast<double>(max_distance) / static_cast<double>(exact)));
    return side + std::min(exact + static_cast<int64_t>(log(ratio) / most * static_cast<float>(n - exact)), n - 1);
  }
};

inline AttentionExtents attention_extents(const sdk::Node& n) {
  using namespace attention_input;
  const galley_operand& q = n.in(Q);
  if (q.rank != 3) wrong(n, "q is " + shape_text(q) + "; it has to be (B, S, columns)");
  AttentionExtents e = {};
  e.B = q.shape[0];
  e.Sq = q.shape[1];
  e.heads = n.i("heads", 0);
  e.kv_heads = n.i("kv_heads", e.heads);
  if (e.heads < 1 || e.kv_heads < 1 || e.heads % e.kv_heads)
    wrong(n,
          "heads = " + std::to_string(e.heads) + ", kv_heads = " + std::to_string(e.kv_heads) + "; heads has to be a multiple of kv_heads");
  e.packed = !n.has(K) && !n.has(V);
  e.by_head = n.i("by_head", 0) != 0;
  if (e.by_head && !e.packed) wrong(n, "by_head is for q, k and v in one operand");
  if (e.by_head && e.heads != e.kv_heads)
    wrong(n, "heads = " + std::to_string(e.heads) + ", kv_heads = " + std::to_string(e.kv_heads) + "; by_head, each head has a key head");
  e.Sk = n.has(K) && n.in(K).rank == 3 ? n.in(K).shape[1] : e.Sq;
  const int64_t slots = e.packed ? e.heads + 2 * e.kv_heads : e.heads;
  e.D = n.i("head_dim", sdk::columns(q) / slots);
  if (e.D < 1 || sdk::columns(q) != slots * e.D)
    wrong(n, std::string(e.packed ? "q with k and v packed after it" : "q") + " is " + shape_text(q) + "; " + std::to_string(slots) +
                 " heads of " + std::to_string(e.D) + " take " + std::to_string(slots * e.D) + " columns");
  e.causal = n.i("causal", 1) != 0;
  e.scale = n.f("scale", 1 / std::sqrt(static_cast<double>(e.D)));
  e.softcap = n.f("softcap", 0);
  if (!(e.softcap >= 0)) wrong(n, "softcap = " + std::to_string(e.softcap) + "; it has to be 0 (none) or more");
  e.window = n.i("window", 0);
  if (e.window < 0) wrong(n, "window = " + std::to_string(e.window) + "; it has to be 0 (none) or more");
  e.dropout = n.training() ? n.f("dropout", 0) : 0;
  if (!(e.dropout >= 0 && e.dropout < 1)) wrong(n, "dropout = " + std::to_string(e.dropout) + "; it has to be at least 0 and below 1");
  if (n.has(Bias)) {
    e.buckets = sdk::columns(n.in(Bias));
    e.max_distance = n.i("max_distance", 128);
    e.bidirectional = n.i("bidirectional", !e.causal) != 0;
    const int64_t least = e.bidirectional ? 4 : 2, exact = e.buckets / least;
    if (exact < 1)
      wrong(n, "bias is " + shape_text(n.in(Bias)) + "; it needs " + std::to_string(least) + " buckets or more" +
                   (e.bidirectional ? ", as it is bidirectional" : ""));
    if (e.max_distance <= exact)
      wrong(n, "max_distance = " + std::to_string(e.max_distance) + "; with " + std::to_string(e.buckets) + " buckets it has to be above " +
                   std::to_string(exact));
  }
  return e;
}

/// Head 0 of sequence 0 in q, in k and in v.
template <class T>
struct AttentionOperands {
  T q, k, v;
};

/// Dropout of probabilities: that of (head, query i, key j) is kept where the word's upper 24 bits reach the threshold. The draw belongs
/// to the row of the window and to the query's position; its block is numbered by head and key, so that neither B nor S nor a blocking
/// changes it. Word j mod 4 of the block.
inline int64_t attention_draw(int64_t head, int64_t key) { return head << 32 | key >> 2; }
inline uint32_t attention_threshold(double dropout) { return static_cast<uint32_t>(std::ceil(dropout * 16777216.0)); }

}  // namespace galley::models
