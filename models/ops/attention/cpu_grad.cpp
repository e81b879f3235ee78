// Backward of attention in F32: probabilities are made again, block by block, from q, k and lse (Dao et al., arXiv:2205.14135, algorithm
// 4); five products a block, nothing of S × S.
//
// A task is one key head of one sequence: all query heads of its group, in order, over all their blocks of queries, so that dk and dv are
// summed in one order without locks; dq belongs to the task alone. With fewer than 8 key heads in the batch the blocks of queries are dealt
// to several tasks of a head, each with a sum of dk and dv of its own; these are added in order at the end.
//
// Workspace, in numbers: for each lane 5·64·D + 2·64·64, and a sum of 2·S·D, which belongs to the task instead where heads are divided (at
// most 14 of them).
//
// Bits. The same bytes for any number of threads: the division depends on B, S and the heads alone.
//
// Measured on one thread of an Intel core with 512-bit vectors (FMA peak 226 GF; tests/models/bench_kernels), causal FLOPs only, best of
// several runs, in GF, forward | backward:
//     GPT-2, 4 × 64                        60 |  60
//     GPT-2, 1 × 512                      107 | 118
//     GPT-2, 1 × 512, dropout              69 |  93
//     SmolLM2, 1 × 512                    118 | 125
//     SmolLM2, 1 × 2048                   123 | 126
//     SmolLM2, 1 × 2048, window 256        96 |  91
//     16 + 8 heads of 128, 1 × 512        107 | 114
#include "ops/attention/block.hpp"

namespace galley::cpu {
namespace {

using namespace sdk;
using namespace models;

constexpr int64_t enough_tasks = 8;

class Gradient {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    if (!all_f32(node)) unsupported("F32 only");
    const AttentionExtents e = attention_extents(node);
    const Division d(e, target);
    plan.workspace_bytes = (d.lanes * floats(e) + d.sums() * sum_floats(e)) * static_cast<int64_t>(sizeof(float)) + 64;
  }

  Gradient(const Node& node, const galley_kernel_setup& setup)
      : node_(node),
        e_(attention_extents(node)),
        division_(e_, *setup.target),
        lanes_(on_a_line(setup.workspace)),
        sums_(lanes_ + division_.lanes * floats(e_)) {}

  void run() const {
    const Dropout dropout(e_, node_.read<int64_t>(4), node_.stream());
    in_lanes(division_.lanes, division_.tasks, [&](int64_t t, int64_t lane) {
      Lane l(e_, lanes_ + lane * floats(e_));
      float* sums = sums_ + (division_.parts > 1 ? t : lane) * sum_floats(e_);
      task(t, dropout, l, sums);
      if (division_.parts == 1) store(t, sums, 0, e_.S);
    });
    if (division_.parts == 1) return;
    const int64_t blocks = divide_up(e_.S, side);
    parallel(e_.B * e_.kv_heads * blocks, [&](int64_t i) {
      const int64_t head = i / blocks, first = i % blocks * side, last = std::min(first + side, e_.S);
      float* sums = sums_ + head * division_.parts * sum_floats(e_);
      for (int64_t part = 1; part < division_.parts; ++part)
        for (int64_t half : {int64_t{0}, e_.S * stride(e_)}) {
          float* __restrict to = sums + half;
          const float* __restrict from = sums + part * sum_floats(e_) + half;
          for (int64_t x = first * stride(e_); x < last * stride(e_); ++x) to[x] += from[x];
        }
      store(head, sums, first, last);
    });
  }

 private:
  struct Division {
    Division(const AttentionExtents& e, const galley_target& target) {
      const int64_t heads = e.B * e.kv_heads, blocks = divide_up(e.S, side);
      for (parts = 1; parts * heads < enough_tasks && parts * 2 <= blocks;) parts *= 2;
      tasks = heads * parts;
      lanes = std::clamp<int64_t>(target.threads, 1, tasks);
    }
    int64_t sums() const { return parts > 1 ? tasks : lanes; }
    int64_t parts, tasks, lanes;
  };
  struct Lane {
    Lane(const AttentionExtents& e, float* at) {
      Cut cut(at);
      q = cut.take(e.D * side);
      go = cut.take(e.D * side);
      dq = cut.take(e.D * side);
      q_rows = cut.take(side * stride(e));
      go_rows = cut.take(side * stride(e));
      p = cut.take(side * side);
      ds = cut.take(side * side);
      lse = cut.take(side);
      delta = cut.take(side);
      bounds.first = cut.take<int32_t>(side);
      bounds.last = cut.take<int32_t>(side);
      factors = cut.take(e.dropout > 0 ? side * side : 0);
    }
    float *q, *go, *dq;       // (D, 64): scale·q, do and dq in columns
    float *q_rows, *go_rows;  // (64, D): scale·q and do in rows
    float *p, *ds;            // (keys, 64)
    float *lse, *delta;       // (64)
    float* factors;           // (keys, 64)
    Bounds bounds;
  };
  static int64_t stride(const AttentionExtents& e) { return round_up(e.D, tile::width); }
  static int64_t floats(const AttentionExtents& e) {
    return 3 * e.D * side + 2 * side * stride(e) + 2 * side * side + 4 * side + (e.dropout > 0 ? side * side : 0);
  }
  /// dk, then dv of one key head, (S, D rounded up) each.
  static int64_t sum_floats(const AttentionExtents& e) { return 2 * e.S * stride(e); }

  void task(int64_t t, const Dropout& dropout, Lane& l, float* sums) const {
    const int64_t head = t / division_.parts, part = t % division_.parts, b = head / e_.kv_heads, kv_head = head % e_.kv_heads;
    std::fill_n(sums, sum_floats(e_), 0.0f);
    for (int64_t h = kv_head * e_.group(); h < (kv_head + 1) * e_.group(); ++h)
      for (int64_t first = 0, i = 0; first < e_.S; first += side, ++i) {
        // Dealt back and forth, as later blocks see more keys.
        const int64_t turn = i % division_.parts, whose = i / division_.parts % 2 ? division_.parts - 1 - turn : turn;
        if (whose == part) block({b, h, first, std::min(side, e_.S - first)}, dropout, l, sums, sums + e_.S * stride(e_));
      }
  }

  void load(const Queries& q, Lane& l) const {
    const AttentionOperands<const float> in = attention_inputs<float>(node_, e_);
    const int64_t D = e_.D, W = stride(e_), at = (q.b * e_.S + q.first) * e_.q_columns() + q.head * D;
    const float *from = in.q + (q.b * e_.S + q.first) * e_.q_row() + q.head * D, *o = node_.read<float>(5) + at,
                *go = node_.read<float>(7) + at;
    const float scale = static_cast<float>(e_.scale), *lse = node_.read<float>(6) + (q.b * e_.heads + q.head) * e_.S + q.first;
    load_columns(q, D, from, e_.q_row(), scale, l.q);
    load_columns(q, D, go, e_.q_columns(), 1.0f, l.go);
    for (int64_t c = 0; c < q.n; ++c) {
      const float *x = from + c * e_.q_row(), *y = go + c * e_.q_columns(), *z = o + c * e_.q_columns();
      float *to = l.q_rows + c * W, *go_to = l.go_rows + c * W;
      for (int64_t d = 0; d < D; ++d) to[d] = scale * x[d];
      std::copy_n(y, D, go_to);
      std::fill_n(to + D, W - D, 0.0f);
      std::fill_n(go_to + D, W - D, 0.0f);
      l.delta[c] = sum(D, [=](int64_t d) { return y[d] * z[d]; });
      l.lse[c] = lse[c];
    }
    for (int64_t c = q.n; c < q.columns(); ++c) l.delta[c] = l.lse[c] = 0;
    l.bounds.fill(e_, q, node_.read<int32_t>(3));
    std::fill_n(l.dq, D * side, 0.0f);
  }

  void block(const Queries& q, const Dropout& dropout, Lane& l, float* dk, float* dv) const {
    const AttentionOperands<const float> in = attention_inputs<float>(node_, e_);
    const int64_t D = e_.D, W = stride(e_), row = e_.kv_row(), columns = q.columns();
    const int64_t heads = q.b * e_.S * row + q.head / e_.group() * D;
    load(q, l);
    for (int64_t key = l.bounds.begin; key <= q.last(); key += side) {
      const int64_t keys = std::min(side, q.last() + 1 - key);
      const float *k = in.k + heads + key * row, *v = in.v + heads + key * row;
      scores(q, key, keys, D, k, row, l.q, l.p);
      scores(q, key, keys, D, v, row, l.go, l.ds);
      if (l.bounds.masks(q, key, keys)) {
        l.bounds.mask(q, key, keys, -__builtin_inff(), l.p);
        l.bounds.mask(q, key, keys, 0.0f, l.ds);
      }
      if (dropout.acts()) dropout.fill(q, key, keys, l.factors);
      slopes(keys, columns, dropout.acts(), l);
      seen(q, key, keys, [&](int64_t j, int64_t n, int64_t g) {
        const int64_t c = g * tile::width, at = (key + j) * W;
        tile::product(n, W / tile::width, q.n - c, Strided{l.p + j * side + c, side, 1}, l.go_rows + c * W, W, dv + at, W, Onto::Add);
        tile::product(n, W / tile::width, q.n - c, Strided{l.ds + j * side + c, side, 1}, l.q_rows + c * W, W, dk + at, W, Onto::Add);
      });
      combine(q, key, keys, D, k, row, l.ds, l.dq);
    }
    const float scale = static_cast<float>(e_.scale);
    for (int64_t d = 0; d < D; ++d)
      for (int64_t c = 0; c < columns; ++c) l.dq[d * side + c] *= scale;
    const AttentionOperands<float> out = attention_outputs<float>(node_, e_);
    transpose(l.dq, side, D, q.n, out.q + (q.b * e_.S + q.first) * e_.q_row() + q.head * D, e_.q_row());
  }

  // From scores and dO·Vᵀ to what dv is made of, P∘M, and dS without its scale.
  static void slopes(int64_t keys, int64_t columns, bool dropout, Lane& l) {
    const float* __restrict lse = l.lse, * __restrict delta = l.delta;
    for (int64_t j = 0; j < keys; ++j) {
      float* __restrict p = l.p + j * side, * __restrict ds = l.ds + j * side;
      if (dropout) {
        const float* __restrict m = l.factors + j * side;
        for (int64_t c = 0; c < columns; ++c) {
          const float probability = exp(p[c] - lse[c]);
          p[c] = probability * m[c];
          ds[c] = probability * (ds[c] * m[c] - delta[c]);
        }
      } else {
        for (int64_t c = 0; c < columns; ++c) {
          p[c] = exp(p[c] - lse[c]);
          ds[c] = p[c] * (ds[c] - delta[c]);
        }
      }
    }
  }

  // Keys first … last − 1 of a key head.
  void store(int64_t head, const float* sums, int64_t first, int64_t last) const {
    const AttentionOperands<float> out = attention_outputs<float>(node_, e_);
    const int64_t b = head / e_.kv_heads, kv_head = head % e_.kv_heads;
    for (int64_t j = first; j < last; ++j) {
      const int64_t to = (b * e_.S + j) * e_.kv_row() + kv_head * e_.D;
      std::copy_n(sums + j * stride(e_), e_.D, out.k + to);
      std::copy_n(sums + (e_.S + j) * stride(e_), e_.D, out.v + to);
    }
  }

  Node node_;
  AttentionExtents e_;
  Division division_;
  float *lanes_, *sums_;
};

const bool added = add(kernel_of<Gradient>("attention_grad.blocks", "attention_grad"));

}  // namespace
}  // namespace galley::cpu
