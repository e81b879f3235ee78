// Attention in F32: blocks of 64 queries by 64 keys with a running maximum and sum for each query (Dao et al., arXiv:2205.14135; Milakov
// and Gimelshein, arXiv:1805.02867), nothing of S × S. A task is one block of queries of one head; a lane's buffers hold 2·64·D + 64·64
// numbers, and 64·64 more where dropout acts.
//
// Bits. A task's result depends on nothing but its inputs, so any number of threads gives the same bytes; so do a batch of 8 and 8 batches
// of 1.
//
// Measured: see cpu_grad.cpp.
#include "ops/attention/block.hpp"

namespace galley::cpu {
namespace {

using namespace sdk;
using namespace models;

constexpr float lowest = -1e30f;  // a maximum before any score: finite, so that e^(−∞ − lowest) is 0 and e^(lowest − lowest) is 1

class Forward {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!all_f32(node)) unsupported("F32 only");
    const AttentionExtents e = attention_extents(node);
    plan.workspace_bytes = lanes(e, target) * floats(e) * static_cast<int64_t>(sizeof(float)) + 64;
  }

  Forward(const Node& node, const galley_kernel_setup& setup)
      : node_(node), e_(attention_extents(node)), lanes_(lanes(e_, *setup.target)), workspace_(on_a_line(setup.workspace)) {}

  void run() const {
    const Dropout dropout(e_, node_.read<int64_t>(4), node_.stream());
    const int64_t blocks = divide_up(e_.S, side), heads = e_.B * e_.heads;
    in_lanes(lanes_, heads * blocks, [&](int64_t task, int64_t lane) {
      Lane l(e_, workspace_ + lane * floats(e_));
      // Later blocks see more keys: a head's last goes first, so that what is left at the end is short.
      const int64_t head = task / blocks, first = (blocks - 1 - task % blocks) * side;
      block({head / e_.heads, head % e_.heads, first, std::min(side, e_.S - first)}, dropout, l);
    });
  }

 private:
  struct Lane {
    Lane(const AttentionExtents& e, float* at) {
      Cut cut(at);
      q = cut.take(e.D * side);
      o = cut.take(e.D * side);
      p = cut.take(side * side);
      largest = cut.take(side);
      before = cut.take(side);
      sum = cut.take(side);
      bounds.first = cut.take<int32_t>(side);
      bounds.last = cut.take<int32_t>(side);
      factors = cut.take(e.dropout > 0 ? side * side : 0);
    }
    float *q, *o, *p;               // (D, 64), (D, 64), (keys, 64)
    float *largest, *before, *sum;  // (64)
    float* factors;                 // (keys, 64)
    Bounds bounds;
  };
  static int64_t floats(const AttentionExtents& e) { return 2 * e.D * side + side * side + 5 * side + (e.dropout > 0 ? side * side : 0); }
  static int64_t lanes(const AttentionExtents& e, const galley_target& target) {
    return std::clamp<int64_t>(target.threads, 1, e.B * e.heads * divide_up(e.S, side));
  }

  void block(const Queries& q, const Dropout& dropout, Lane& l) const {
    const AttentionOperands<const float> in = attention_inputs<float>(node_, e_);
    const int64_t D = e_.D, row = e_.kv_row(), columns = q.columns();
    const int64_t heads = q.b * e_.S * row + q.head / e_.group() * D;
    const float *k = in.k + heads, *v = in.v + heads;
    load_columns(q, D, in.q + (q.b * e_.S + q.first) * e_.q_row() + q.head * D, e_.q_row(), static_cast<float>(e_.scale), l.q);
    l.bounds.fill(e_, q, node_.read<int32_t>(3));
    std::fill_n(l.o, D * side, 0.0f);
    std::fill_n(l.largest, side, lowest);
    std::fill_n(l.sum, side, 0.0f);
    for (int64_t key = l.bounds.begin; key <= q.last(); key += side) {
      const int64_t keys = std::min(side, q.last() + 1 - key);
      scores(q, key, keys, D, k + key * row, row, l.q, l.p);
      if (l.bounds.masks(q, key, keys)) l.bounds.mask(q, key, keys, -__builtin_inff(), l.p);
      softmax(keys, columns, D, l);
      if (dropout.acts()) {
        dropout.fill(q, key, keys, l.factors);
        for (int64_t j = 0; j < keys; ++j)
          for (int64_t c = 0; c < columns; ++c) l.p[j * side + c] *= l.factors[j * side + c];
      }
      combine(q, key, keys, D, v + key * row, row, l.p, l.o);
    }
    finish(q, l);
  }

  // Scores become e^(score − largest); what was summed under a smaller maximum shrinks.
  static void softmax(int64_t keys, int64_t columns, int64_t D, Lane& l) {
    float* __restrict largest = l.largest, * __restrict before = l.before, * __restrict sum = l.sum;
    std::memcpy(before, largest, side * sizeof(float));
    for (int64_t j = 0; j < keys; ++j) {
      const float* __restrict p = l.p + j * side;
      for (int64_t c = 0; c < columns; ++c) largest[c] = p[c] > largest[c] ? p[c] : largest[c];
    }
    bool same = true;
    for (int64_t c = 0; c < columns; ++c) same &= before[c] == largest[c];
    if (!same) {
      for (int64_t c = 0; c < columns; ++c) {
        before[c] = exp(before[c] - largest[c]);
        sum[c] *= before[c];
      }
      for (int64_t d = 0; d < D; ++d) {
        float* __restrict o = l.o + d * side;
        for (int64_t c = 0; c < columns; ++c) o[c] *= before[c];
      }
    }
    for (int64_t j = 0; j < keys; ++j) {
      float* __restrict p = l.p + j * side;
      for (int64_t c = 0; c < columns; ++c) {
        p[c] = exp(p[c] - largest[c]);
        sum[c] += p[c];
      }
    }
  }

  void finish(const Queries& q, Lane& l) const {
    float* lse = node_.write<float>(1) + (q.b * e_.heads + q.head) * e_.S + q.first;
    for (int64_t c = 0; c < q.n; ++c) lse[c] = l.largest[c] + log(l.sum[c]);
    for (int64_t c = 0; c < q.columns(); ++c) l.before[c] = 1.0f / l.sum[c];
    for (int64_t d = 0; d < e_.D; ++d)
      for (int64_t c = 0; c < q.columns(); ++c) l.o[d * side + c] *= l.before[c];
    transpose(l.o, side, e_.D, q.n, node_.write<float>(0) + (q.b * e_.S + q.first) * e_.q_columns() + q.head * e_.D, e_.q_columns());
  }

  Node node_;
  AttentionExtents e_;
  int64_t lanes_;
  float* workspace_;
};

const bool added = add(kernel_of<Forward>("attention.blocks", "attention"));

}  // namespace
}  // namespace galley::cpu
