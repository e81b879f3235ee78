// What attention's nodes say about themselves: extents, where heads lie in their operands, which keys a query sees, what dropout draws.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "ops/check.hpp"

namespace galley::models {

/// q (B, S, heads·D), k and v (B, S, kv_heads·D); packed: one operand (B, S, (heads + 2·kv_heads)·D) that holds q, then k, then v.
struct AttentionExtents {
  int64_t B, S, heads, kv_heads, D;
  bool packed;
  double scale;
  int64_t window;  ///< 0: none
  double dropout;  ///< 0 outside training

  int64_t group() const { return heads / kv_heads; }
  int64_t q_columns() const { return heads * D; }
  int64_t kv_columns() const { return kv_heads * D; }
  /// Distance of rows of q, and of k and v.
  int64_t q_row() const { return packed ? q_columns() + 2 * kv_columns() : q_columns(); }
  int64_t kv_row() const { return packed ? q_row() : kv_columns(); }

  /// Query i of a sequence sees the keys first(i, first_key) … i; itself always.
  int64_t first(int64_t i, int64_t first_key) const {
    const int64_t bound = window > 0 ? std::max(first_key, i - window + 1) : first_key;
    return std::clamp<int64_t>(bound, 0, i);
  }
  /// Pairs of a query and a key that it sees, for one head of one sequence of one document.
  double pairs() const {
    const int64_t w = window > 0 ? std::min(window, S) : S;
    return 0.5 * static_cast<double>(w) * static_cast<double>(w + 1) + static_cast<double>(S - w) * static_cast<double>(w);
  }
};

/// Inputs 0, 1 and 2 of both ops are q, k and v.
inline AttentionExtents attention_extents(const sdk::Node& n) {
  const galley_operand& q = n.in(0);
  if (q.rank != 3) wrong(n, "q is " + shape_text(q) + "; it has to be (B, S, columns)");
  AttentionExtents e = {};
  e.B = q.shape[0];
  e.S = q.shape[1];
  e.heads = n.i("heads", 0);
  e.kv_heads = n.i("kv_heads", e.heads);
  if (e.heads < 1 || e.kv_heads < 1 || e.heads % e.kv_heads)
    wrong(n,
          "heads = " + std::to_string(e.heads) + ", kv_heads = " + std::to_string(e.kv_heads) + "; heads has to be a multiple of kv_heads");
  e.packed = !n.has(1) && !n.has(2);
  const int64_t slots = e.packed ? e.heads + 2 * e.kv_heads : e.heads;
  e.D = n.i("head_dim", sdk::columns(q) / slots);
  if (e.D < 1 || sdk::columns(q) != slots * e.D)
    wrong(n, std::string(e.packed ? "q with k and v packed behind it" : "q") + " is " + shape_text(q) + "; " + std::to_string(slots) +
                 " heads of " + std::to_string(e.D) + " take " + std::to_string(slots * e.D) + " columns");
  e.scale = n.f("scale", 1 / std::sqrt(static_cast<double>(e.D)));
  e.window = n.i("window", 0);
  if (e.window < 0) wrong(n, "window = " + std::to_string(e.window) + "; it has to be 0 (none) or more");
  e.dropout = n.training() ? n.f("dropout", 0) : 0;
  if (!(e.dropout >= 0 && e.dropout < 1)) wrong(n, "dropout = " + std::to_string(e.dropout) + "; it has to be at least 0 and below 1");
  return e;
}

/// Where head h of sequence b begins, in q and in k and v alike; T is the type of their elements.
template <class T>
struct AttentionOperands {
  T *q, *k, *v;
};
template <class T>
AttentionOperands<T> packed_operands(const AttentionExtents& e, T* data) {
  return {data, data + e.q_columns(), data + e.q_columns() + e.kv_columns()};
}
/// Of inputs 0, 1 and 2.
template <class T>
AttentionOperands<const T> attention_inputs(const sdk::Node& n, const AttentionExtents& e) {
  const T* q = n.read<T>(0);
  return e.packed ? packed_operands(e, q) : AttentionOperands<const T>{q, n.read<T>(1), n.read<T>(2)};
}
/// Of attention_grad's outputs.
template <class T>
AttentionOperands<T> attention_outputs(const sdk::Node& n, const AttentionExtents& e) {
  T* q = n.write<T>(0);
  return e.packed ? packed_operands(e, q) : AttentionOperands<T>{q, n.write<T>(1), n.write<T>(2)};
}

/// Dropout of probabilities: that of (head, query i, key j) is kept where the word's upper 24 bits reach the threshold. The draw belongs
/// to the row of the window and to the query's position; its block is numbered by head and key, so that neither B nor S nor a blocking
/// changes it. Word j mod 4 of the block.
inline int64_t attention_draw(int64_t head, int64_t key) { return head << 32 | key >> 2; }
inline uint32_t attention_threshold(double dropout) { return static_cast<uint32_t>(std::ceil(dropout * 16777216.0)); }

}  // namespace galley::models
