// Attention: blocks of 64 queries by 64 keys with a running maximum and sum for each query (Dao et al., arXiv:2205.14135; Milakov and
// Gimelshein, arXiv:1805.02867), nothing of Sq × Sk. A task is one block of queries of one head. What a node does not ask for costs
// nothing: bounds, biases, a cap and dropout are each a pass over a block of scores, made where they act.
//
// A lane's buffers hold 2·64·D + 64·64 numbers; 64·D more for keys or values of 16 or 8 bit, 64·64 more where dropout acts.
//
// Bits. A task's result depends on nothing but its inputs, so any number of threads gives the same bytes; so do a batch of 8 and 8 batches
// of 1, and a row of one document with first_key and without.
//
// The two products of a block are made in F32, or by words of BF16 (pairs.hpp), which have half of q's numbers and 16·D words of values and
// 32·64 of probabilities.
//
// Measured: see cpu_grad.cpp.
#include "ops/attention/pairs.hpp"
#include "ops/attention/relative.hpp"

namespace galley::cpu {
namespace {

using namespace sdk;
using namespace models;
using namespace models::attention_input;

constexpr float lowest = -1e30f;  // a maximum before any score: finite, so that e^(−∞ − lowest) is 0 and e^(lowest − lowest) is 1

/// The products of a block, in F32. Has what a lane needs for them.
class InF32 {
 public:
  static constexpr int64_t priority = 0;
  static void check(const Node&, const galley_target&) {}
  static void check_processor(const Node&) {}

  InF32(const Node& node, const AttentionExtents& e, Cut& cut) : e_(e), q_(cut.take(e.D * side)) {
    if (converts(node)) rows_ = cut.take(side * e.D);
  }
  /// `buffer` (64, D).
  void load(const Queries& q, const Numbers& from, float* buffer) {
    load_columns(q, e_.D, rows_of(from, e_.q_row(), q.n, e_.D, buffer), static_cast<float>(e_.scale), q_);
  }
  void scores_of(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, const Numbers& k, float* out) {
    scores(q, bounds, key, keys, e_.D, rows_of(k, e_.kv_row(), keys, e_.D, rows_), q_, out);
  }
  void add_values(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, const Numbers& v, const float* p, float* out) {
    combine(q, bounds, key, keys, e_.D, rows_of(v, e_.kv_row(), keys, e_.D, rows_), p, out);
  }
  /// (64, D): q is no longer needed.
  float* buffer() { return q_; }

 private:
  const AttentionExtents& e_;
  float* q_;               // (D, 64): scale·q in columns
  float* rows_ = nullptr;  // (64, D): keys or values
};

#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4
/// The same by words of BF16.
class InWords {
 public:
  static constexpr int64_t priority = 1;
  static void check(const Node& node, const galley_target& target) { words::check(node, target, {Q, K, V}); }
  static void check_processor(const Node& node) { cpu::check_processor(node, __builtin_cpu_supports("avx512bf16")); }

  InWords(const Node&, const AttentionExtents& e, Cut& cut)
      : e_(e),
        q_(cut.take<uint32_t>(e.D * side)),
        values_(cut.take<uint32_t>(side / 2 * width())),
        weights_(cut.take<uint32_t>(side / 2 * side)) {}
  void load(const Queries& q, const Numbers& from, float*) { words::load_columns(q, e_.D, words::rows_of(from, e_.q_row()), q_); }
  void scores_of(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, const Numbers& k, float* out) {
    words::scores(q, bounds, key, keys, e_.D, words::rows_of(k, e_.kv_row()), static_cast<float>(e_.scale), q_, out);
  }
  void add_values(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, const Numbers& v, const float* p, float* out) {
    words::pair_rows(v, e_.kv_row(), keys, e_.D, width(), values_);
    words::round_down(p, keys, q.columns(), 1.0f, weights_);
    words::combine(q, bounds, key, keys, e_.D, values_, width(), weights_, out);
  }
  float* buffer() { return reinterpret_cast<float*>(q_); }

 private:
  int64_t width() const { return round_up(e_.D, tile::width); }
  const AttentionExtents& e_;
  uint32_t* q_;                  // (D / 2, 64) of room for (64, D)
  uint32_t *values_, *weights_;  // (32, D rounded up), (32, 64)
};
#endif

/// `cached`: of cached_attention, whose queries stand where `start` says.
template <class Products, bool cached = false>
class Forward {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    Products::check(node, target);
    plan.priority = Products::priority;
    const AttentionExtents e = attention_extents(node);
    const int64_t floats = lanes(e, target) * Lane(node, e, nullptr).floats + Relative::table_ints(e);
    plan.workspace_bytes = floats * static_cast<int64_t>(sizeof(float)) + 64;
  }

  Forward(const Node& node, const galley_kernel_setup& setup)
      : node_(node), e_(attention_extents(node)), lanes_(lanes(e_, *setup.target)), workspace_(on_a_line(setup.workspace)) {
    Products::check_processor(node);
  }

  void run() const {
    const int64_t floats = Lane(node_, e_, nullptr).floats;
    const int32_t* start = cached ? node_.read<int32_t>(Start) : nullptr;
    const Dropout dropout(e_, cached ? nullptr : node_.read<int64_t>(Random), node_.stream());
    const Relative relative(e_, node_, reinterpret_cast<int32_t*>(workspace_ + lanes_ * floats));
    relative.fill();
    const int64_t blocks = divide_up(e_.Sq, side), heads = e_.B * e_.heads;
    in_lanes(lanes_, heads * blocks, [&](int64_t task, int64_t lane) {
      Lane l(node_, e_, workspace_ + lane * floats);
      // Later blocks see more keys: a head's last goes first, so that what is left at the end is short.
      const int64_t head = task / blocks, first = (blocks - 1 - task % blocks) * side;
      const int64_t b = head / e_.heads;
      block({b, head % e_.heads, first, std::min(side, e_.Sq - first), start ? start[b] : e_.shift()}, dropout, relative, l);
    });
  }

 private:
  struct Lane {
    Lane(const Node& node, const AttentionExtents& e, float* at) : Lane(node, e, Cut(at)) {}
    Lane(const Node& node, const AttentionExtents& e, Cut cut) : products(node, e, cut) {
      o = cut.take(e.D * side);
      p = cut.take(side * side);
      largest = cut.take(side);
      before = cut.take(side);
      sum = cut.take(side);
      int32_t* first = cut.take<int32_t>(side);
      bounds = Bounds(first, cut.take<int32_t>(side));
      if (node.has(Slopes) || node.has(Bias)) line = cut.take(Relative::line_floats);
      if (e.dropout > 0) factors = cut.take(side * side);
      floats = cut.taken();
    }
    Products products;
    float *o, *p;                   // (D, 64), (keys, 64)
    float *largest, *before, *sum;  // (64)
    float* line = nullptr;          // of Relative
    float* factors = nullptr;       // (keys, 64)
    Bounds bounds{nullptr, nullptr};
    int64_t floats;
  };
  static int64_t lanes(const AttentionExtents& e, const galley_target& target) {
    return std::clamp<int64_t>(target.threads, 1, e.B * e.heads * divide_up(e.Sq, side));
  }

  void block(const Queries& q, const Dropout& dropout, const Relative& relative, Lane& l) const {
    AttentionOperands<Numbers> in = operands_of(e_, &node_.in(Q), node_.view()->inputs[K], node_.view()->inputs[V]);
    if (cached) in.k.scales = node_.read<Bf16>(KScales), in.v.scales = node_.read<Bf16>(VScales);
    const int64_t D = e_.D, row = e_.kv_row(), columns = q.columns();
    const int64_t heads = e_.kv_at(q.b, q.head / e_.group(), 0);
    l.products.load(q, in.q.from(e_.q_at(q.b, q.head, q.first)), l.o);
    l.bounds.set(e_, q, node_.read<int32_t>(FirstKey), node_.read<int32_t>(LastKey));
    std::fill_n(l.o, D * side, 0.0f);
    std::fill_n(l.largest, side, lowest);
    std::fill_n(l.sum, side, 0.0f);
    for (int64_t key = l.bounds.begin(); key < l.bounds.end(); key += side) {
      const int64_t keys = std::min(side, l.bounds.end() - key);
      l.products.scores_of(q, l.bounds, key, keys, in.k.from(heads + key * row), l.p);
      if (e_.softcap > 0) cap(keys, columns, l);
      if (relative.acts()) relative.add(q, key, keys, l.p, l.line);
      if (l.bounds.masks(key, keys)) l.bounds.mask(q, key, keys, -__builtin_inff(), l.p);
      softmax(keys, columns, D, l);
      if (dropout.acts()) {
        dropout.fill(q, key, keys, l.factors);
        for (int64_t j = 0; j < keys; ++j)
          for (int64_t c = 0; c < columns; ++c) l.p[j * side + c] *= l.factors[j * side + c];
      }
      l.products.add_values(q, l.bounds, key, keys, in.v.from(heads + key * row), l.p, l.o);
    }
    finish(q, l);
  }

  void cap(int64_t keys, int64_t columns, Lane& l) const {
    const float most = static_cast<float>(e_.softcap);
    for (int64_t j = 0; j < keys; ++j) {
      float* __restrict p = l.p + j * side;
      for (int64_t c = 0; c < columns; ++c) p[c] = most * tanh(p[c] / most);
    }
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
    // A block by itself: one after the other, hundreds of equal keys (an encoder's padding) would all be rounded in one direction.
    float of_block[side] = {};
    for (int64_t j = 0; j < keys; ++j) {
      float* __restrict p = l.p + j * side;
      for (int64_t c = 0; c < columns; ++c) {
        p[c] = exp(p[c] - largest[c]);
        of_block[c] += p[c];
      }
    }
    for (int64_t c = 0; c < columns; ++c) sum[c] += of_block[c];
  }

  // A query that saw no key has a sum of 0: so its lse is −∞, and o is to be 0.
  void finish(const Queries& q, Lane& l) const {
    float* lse = node_.write<float>(1) + (q.b * e_.heads + q.head) * e_.Sq + q.first;
    for (int64_t c = 0; c < q.n; ++c) lse[c] = l.largest[c] + log(l.sum[c]);
    for (int64_t c = 0; c < q.columns(); ++c) l.before[c] = l.sum[c] == 0.0f ? 0.0f : 1.0f / l.sum[c];
    for (int64_t d = 0; d < e_.D; ++d)
      for (int64_t c = 0; c < q.columns(); ++c) l.o[d * side + c] *= l.before[c];
    const Numbers o = numbers_of(&node_.out(0)).from(e_.o_at(q.b, q.head, q.first));
    store_columns(q, e_.D, l.o, o, e_.q_columns(), l.products.buffer());
  }

  Node node_;
  AttentionExtents e_;
  int64_t lanes_;
  float* workspace_;
};

const bool added = add(kernel_of<Forward<InF32>>("attention.blocks", "attention")) &&
                   add(kernel_of<Forward<InF32, true>>("cached_attention.blocks", "cached_attention"));
#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4
const bool added_words = add(kernel_of<Forward<InWords>>("attention.avx512_bf16", "attention")) &&
                         add(kernel_of<Forward<InWords, true>>("cached_attention.avx512_bf16", "cached_attention"));
#endif

}  // namespace
}  // namespace galley::cpu
