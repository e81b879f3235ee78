// Backward of attention: probabilities are made again, block by block, from q, k and lse (Dao et al., arXiv:2205.14135, algorithm 4); five
// products a block, nothing of Sq × Sk.
//
// A task is one key head of one sequence: all query heads of its group, in order, over all their blocks of queries, so that dk and dv are
// summed in one order without locks; dq belongs to the task alone. With fewer than 8 key heads in the batch the blocks of queries are dealt
// to several tasks of a head, each with a sum of dk and dv of its own; these are added in order at the end.
//
// The gradient of biases is summed along the diagonals of each block, then over a head's blocks by distance, then into buckets; tasks'
// sums are added in order at the end.
//
// Workspace, in numbers: for each lane 5·64·D + 2·64·64, and a sum of 2·Sk·D, which belongs to the task instead where heads are divided
// (at most 14 of them). For 16-bit keys 2·64·D more, for a cap and for dropout 64·64 each, for biases Sq + Sk. By words of BF16 (pairs.hpp)
// a lane has 5.5·64·D + 3.5·64·64.
//
// Bits. The same bytes for any number of threads: the division depends on B, Sq and the heads alone.
//
// Measured on one thread of an Intel core with 512-bit vectors (FMA peak 226 GF; tests/bench/kernels.cpp), causal FLOPs only, best of
// several runs, in GF, forward | backward, F32 where nothing else is said:
//     GPT-2, 4 × 64                        60 |  60
//     GPT-2, 1 × 512                      110 | 120
//     GPT-2, 1 × 512, first_key           107 | 123
//     GPT-2, 1 × 512, BF16                111 | 128
//     GPT-2, 1 × 512, F16                 104 | 122
//     GPT-2, 1 × 512, dropout              87 | 111
//     SmolLM2, 1 × 512                    118 | 126
//     SmolLM2, 1 × 2048                   124 | 130
//     SmolLM2, 1 × 2048, BF16             122 | 135
//     SmolLM2, 1 × 2048, window 256        96 |  99
//     SmolLM2, 1 × 2048, softcap          100 | 115
//     16 + 8 heads of 128, 1 × 512        102 | 120
//     T5, not causal, biases, 1 × 512     112 | 127
// On two threads of a Zen 4 (F32 232 GF, pairs of BF16 465 GF), BF16, in F32 → by words of BF16:
//     GPT-2, 1 × 512            131 → 205 | 139 → 222
//     SmolLM2, 1 × 2048         139 → 228 | 146 → 230
#include "ops/attention/pairs.hpp"
#include "ops/attention/relative.hpp"

namespace galley::cpu {
namespace {

using namespace sdk;
using namespace models;
using namespace models::attention_input;
using namespace models::attention_output;

constexpr int64_t enough_tasks = 8;

inline int64_t width_of(const AttentionExtents& e) { return round_up(e.D, tile::width); }

/// The five products of a block, in F32. Has what a lane needs for them.
class InF32 {
 public:
  static constexpr int64_t priority = 0;
  static void check(const Node&, const galley_target&) {}
  static void check_processor(const Node&) {}

  InF32(const Node& node, const AttentionExtents& e, Cut& cut)
      : e_(e),
        W_(width_of(e)),
        q_(cut.take(e.D * side)),
        go_(cut.take(e.D * side)),
        q_rows_(cut.take(side * W_)),
        go_rows_(cut.take(side * W_)) {
    if (converts(node)) k_rows_ = cut.take(side * e.D), v_rows_ = cut.take(side * e.D);
  }

  void load(const Queries& q, const Numbers& from_q, const Numbers& from_go) {
    load_rows(from_q, e_.q_row(), q.n, e_.D, static_cast<float>(e_.scale), q_rows_, W_);
    load_rows(from_go, e_.q_columns(), q.n, e_.D, 1.0f, go_rows_, W_);
    load_columns(q, e_.D, {q_rows_, W_}, 1.0f, q_);
    load_columns(q, e_.D, {go_rows_, W_}, 1.0f, go_);
    for (int64_t c = 0; c < q.n; ++c) {
      std::fill_n(q_rows_ + c * W_ + e_.D, W_ - e_.D, 0.0f);
      std::fill_n(go_rows_ + c * W_ + e_.D, W_ - e_.D, 0.0f);
    }
  }
  const float* go_row(int64_t c) const { return go_rows_ + c * W_; }

  /// p: scale·k·qᵀ; ds: v·doᵀ.
  void scores_of(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, const Numbers& k, const Numbers& v, float* p,
                 float* ds) {
    k_ = rows_of(k, e_.kv_row(), keys, e_.D, k_rows_);
    scores(q, bounds, key, keys, e_.D, k_, q_, p);
    scores(q, bounds, key, keys, e_.D, rows_of(v, e_.kv_row(), keys, e_.D, v_rows_), go_, ds);
  }
  /// dv += p·do, dk += scale·ds·q; dq_factor()·dq is what is to be.
  void add_gradients(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, const Numbers&, const float* p, const float* ds,
                     float* dk, float* dv, float* dq) {
    bounds.parts(key, keys, [&](int64_t j, int64_t n, int64_t g) {
      const int64_t c = g * tile::width, at = (key + j) * W_;
      tile::product(n, W_ / tile::width, q.n - c, Strided{p + j * side + c, side, 1}, go_rows_ + c * W_, W_, dv + at, W_, Onto::Add);
      tile::product(n, W_ / tile::width, q.n - c, Strided{ds + j * side + c, side, 1}, q_rows_ + c * W_, W_, dk + at, W_, Onto::Add);
    });
    combine(q, bounds, key, keys, e_.D, k_, ds, dq);
  }
  float dq_factor() const { return static_cast<float>(e_.scale); }
  /// (64, D): q is no longer needed.
  float* buffer() { return q_; }

 private:
  const AttentionExtents& e_;
  int64_t W_;
  float *q_, *go_;                               // (D, 64): scale·q and do in columns
  float *q_rows_, *go_rows_;                     // (64, W): scale·q and do in rows
  float *k_rows_ = nullptr, *v_rows_ = nullptr;  // (64, D)
  Rows k_ = {};
};

#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4
/// The same by words of BF16.
class InWords {
 public:
  static constexpr int64_t priority = 1;
  static void check(const Node& node, const galley_target& target) { words::check(node, target, {Q, K, V, DO}); }
  static void check_processor(const Node& node) { cpu::check_processor(node, __builtin_cpu_supports("avx512bf16")); }

  InWords(const Node&, const AttentionExtents& e, Cut& cut)
      : e_(e),
        W_(width_of(e)),
        q_(cut.take<uint32_t>(e.D * side)),
        go_(cut.take<uint32_t>(e.D / 2 * side)),
        q_pairs_(cut.take<uint32_t>(side / 2 * W_)),
        go_pairs_(cut.take<uint32_t>(side / 2 * W_)),
        k_pairs_(cut.take<uint32_t>(side / 2 * W_)),
        p_(cut.take<uint32_t>(side / 2 * side)),
        ds_(cut.take<uint32_t>(side / 2 * side)),
        ds_pairs_(cut.take<uint32_t>(side / 2 * side)),
        go_rows_(cut.take(side * e.D)) {}

  void load(const Queries& q, const Numbers& from_q, const Numbers& from_go) {
    words::load_columns(q, e_.D, words::rows_of(from_q, e_.q_row()), q_);
    words::load_columns(q, e_.D, words::rows_of(from_go, e_.q_columns()), go_);
    words::pair_rows(from_q, e_.q_row(), q.n, e_.D, W_, q_pairs_);
    words::pair_rows(from_go, e_.q_columns(), q.n, e_.D, W_, go_pairs_);
    load_rows(from_go, e_.q_columns(), q.n, e_.D, 1.0f, go_rows_, e_.D);
  }
  const float* go_row(int64_t c) const { return go_rows_ + c * e_.D; }

  void scores_of(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, const Numbers& k, const Numbers& v, float* p,
                 float* ds) {
    words::scores(q, bounds, key, keys, e_.D, words::rows_of(k, e_.kv_row()), static_cast<float>(e_.scale), q_, p);
    words::scores(q, bounds, key, keys, e_.D, words::rows_of(v, e_.kv_row()), 1.0f, go_, ds);
  }
  void add_gradients(const Queries& q, const Bounds& bounds, int64_t key, int64_t keys, const Numbers& k, const float* p, const float* ds,
                     float* dk, float* dv, float* dq) {
    const auto scale = static_cast<float>(e_.scale);
    words::round_across(p, keys, 1.0f, p_);
    words::round_across(ds, keys, scale, ds_);
    words::round_down(ds, keys, q.columns(), scale, ds_pairs_);
    words::pair_rows(k, e_.kv_row(), keys, e_.D, W_, k_pairs_);
    bounds.parts(key, keys, [&](int64_t j, int64_t n, int64_t g) {
      const int64_t c = g * tile::width / 2, at = (key + j) * W_, depth = (q.n + 1) / 2 - c;
      words::product(n, W_ / tile::width, depth, {p_ + j * side / 2 + c, side / 2, 1}, go_pairs_ + c * W_, W_, dv + at, W_, Onto::Add,
                     1.0f);
      words::product(n, W_ / tile::width, depth, {ds_ + j * side / 2 + c, side / 2, 1}, q_pairs_ + c * W_, W_, dk + at, W_, Onto::Add,
                     1.0f);
    });
    words::combine(q, bounds, key, keys, e_.D, k_pairs_, W_, ds_pairs_, dq);
  }
  float dq_factor() const { return 1.0f; }
  float* buffer() { return reinterpret_cast<float*>(q_); }

 private:
  const AttentionExtents& e_;
  int64_t W_;
  uint32_t *q_, *go_;                         // (D / 2, 64): q and do in columns; q_ has room for (64, D)
  uint32_t *q_pairs_, *go_pairs_, *k_pairs_;  // (32, W): along the queries, along the keys
  uint32_t *p_, *ds_, *ds_pairs_;             // (64, 32) along the queries, (32, 64) along the keys
  float* go_rows_;                            // (64, D)
};
#endif

template <class Products>
class Gradient {
 public:
  static void query(const Node& node, const galley_target& target, galley_kernel_plan& plan) {
    Products::check(node, target);
    plan.priority = Products::priority;
    plan.workspace_bytes = Workspace(node, attention_extents(node), target).floats * static_cast<int64_t>(sizeof(float)) + 64;
  }

  Gradient(const Node& node, const galley_kernel_setup& setup)
      : node_(node),
        e_(attention_extents(node)),
        division_(e_, *setup.target),
        workspace_(node_, e_, *setup.target),
        begin_(on_a_line(setup.workspace)),
        relative_(e_, node_, reinterpret_cast<int32_t*>(begin_ + workspace_.table)) {
    Products::check_processor(node);
  }

  void run() const {
    const Dropout dropout(e_, node_.read<int64_t>(Random), node_.stream());
    relative_.fill();
    in_lanes(division_.lanes, division_.tasks, [&](int64_t t, int64_t lane) {
      Lane l(node_, e_, begin_ + lane * workspace_.lane);
      float* sums = begin_ + workspace_.sums + (division_.parts > 1 ? t : lane) * sum_floats(e_);
      task(t, dropout, l, sums);
      if (division_.parts == 1) store(t, sums, 0, e_.Sk);
    });
    if (node_.has_out(DBias)) add_biases();
    if (division_.parts == 1) return;
    const int64_t blocks = divide_up(e_.Sk, side);
    parallel(e_.B * e_.kv_heads * blocks, [&](int64_t i) {
      const int64_t head = i / blocks, first = i % blocks * side, last = std::min(first + side, e_.Sk);
      float* sums = begin_ + workspace_.sums + head * division_.parts * sum_floats(e_);
      for (int64_t part = 1; part < division_.parts; ++part)
        for (int64_t half : {int64_t{0}, e_.Sk * stride(e_)}) {
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
      const int64_t heads = e.B * e.kv_heads, blocks = divide_up(e.Sq, side);
      for (parts = 1; parts * heads < enough_tasks && parts * 2 <= blocks;) parts *= 2;
      tasks = heads * parts;
      lanes = std::clamp<int64_t>(target.threads, 1, tasks);
    }
    int64_t parts, tasks, lanes;
  };
  struct Lane {
    Lane(const Node& node, const AttentionExtents& e, float* at) : Lane(node, e, Cut(at)) {}
    Lane(const Node& node, const AttentionExtents& e, Cut cut) : products(node, e, cut) {
      dq = cut.take(e.D * side);
      p = cut.take(side * side);
      ds = cut.take(side * side);
      lse = cut.take(side);
      delta = cut.take(side);
      int32_t* first = cut.take<int32_t>(side);
      bounds = Bounds(first, cut.take<int32_t>(side));
      if (e.softcap > 0) slope = cut.take(side * side);
      if (node.has(Slopes) || node.has(Bias)) line = cut.take(Relative::line_floats);
      if (node.has_out(DBias)) by_distance = cut.take(Relative::table_ints(e));
      if (e.dropout > 0) factors = cut.take(side * side);
      floats = cut.taken();
    }
    Products products;
    float* dq;               // (D, 64): in columns
    float *p, *ds;           // (keys, 64)
    float *lse, *delta;      // (64)
    float* slope = nullptr;  // (keys, 64): of the cap
    float *line = nullptr, *by_distance = nullptr;
    float* factors = nullptr;  // (keys, 64)
    Bounds bounds{nullptr, nullptr};
    int64_t floats;
  };
  // Lanes, then sums of dk and dv, the table of buckets and the tasks' sums of dbias, as numbers from the workspace's begin on.
  struct Workspace {
    Workspace(const Node& node, const AttentionExtents& e, const galley_target& target) {
      const Division d(e, target);
      lane = Lane(node, e, nullptr).floats;
      sums = d.lanes * lane;
      table = sums + (d.parts > 1 ? d.tasks : d.lanes) * sum_floats(e);
      biases = table + round_up(Relative::table_ints(e), 16);
      floats = biases + (node.has_out(DBias) ? d.tasks * e.group() * e.buckets : 0);
    }
    int64_t lane, sums, table, biases, floats;
  };
  static int64_t stride(const AttentionExtents& e) { return width_of(e); }
  /// dk, then dv of one key head, (Sk, D rounded up) each.
  static int64_t sum_floats(const AttentionExtents& e) { return 2 * e.Sk * stride(e); }
  /// What a task found of dbias, (group, buckets).
  float* biases(int64_t t) const { return begin_ + workspace_.biases + t * e_.group() * e_.buckets; }

  void task(int64_t t, const Dropout& dropout, Lane& l, float* sums) const {
    const int64_t head = t / division_.parts, part = t % division_.parts, b = head / e_.kv_heads, kv_head = head % e_.kv_heads;
    std::fill_n(sums, sum_floats(e_), 0.0f);
    for (int64_t h = 0; h < e_.group(); ++h) {
      if (l.by_distance) std::fill_n(l.by_distance, Relative::table_ints(e_), 0.0f);
      for (int64_t first = 0, i = 0; first < e_.Sq; first += side, ++i) {
        // Dealt back and forth, as later blocks see more keys.
        const int64_t turn = i % division_.parts, whose = i / division_.parts % 2 ? division_.parts - 1 - turn : turn;
        if (whose == part)
          block({b, kv_head * e_.group() + h, first, std::min(side, e_.Sq - first), e_.shift()}, dropout, l, sums,
                sums + e_.Sk * stride(e_));
      }
      if (l.by_distance) relative_.gather(l.by_distance, biases(t) + h * e_.buckets);
    }
  }

  void load(const Queries& q, Lane& l) const {
    const int64_t D = e_.D, at = e_.o_at(q.b, q.head, q.first);
    const Numbers from = numbers_of(&node_.in(Q)).from(e_.q_at(q.b, q.head, q.first));
    const float* lse = node_.read<float>(Lse) + (q.b * e_.heads + q.head) * e_.Sq + q.first;
    l.products.load(q, from, numbers_of(&node_.in(DO)).from(at));
    const Rows o = rows_of(numbers_of(&node_.in(O)).from(at), e_.q_columns(), q.n, D, l.dq);
    for (int64_t c = 0; c < q.n; ++c) {
      const float *x = l.products.go_row(c), *y = o.data + c * o.row;
      l.delta[c] = sum(D, [=](int64_t d) { return x[d] * y[d]; });
    }
    // Where there is no query, or one that sees no key (lse is −∞), all probabilities are to be 0.
    for (int64_t c = 0; c < q.columns(); ++c) {
      const bool sees = c < q.n && lse[c] != -__builtin_inff();
      l.lse[c] = sees ? lse[c] : __builtin_inff();
      if (c >= q.n) l.delta[c] = 0;
    }
    l.bounds.set(e_, q, node_.read<int32_t>(FirstKey), node_.read<int32_t>(LastKey));
    std::fill_n(l.dq, D * side, 0.0f);
  }

  void block(const Queries& q, const Dropout& dropout, Lane& l, float* dk, float* dv) const {
    const AttentionOperands<Numbers> in = operands_of(e_, &node_.in(Q), node_.view()->inputs[K], node_.view()->inputs[V]);
    const int64_t D = e_.D, row = e_.kv_row(), columns = q.columns();
    const int64_t heads = e_.kv_at(q.b, q.head / e_.group(), 0);
    load(q, l);
    for (int64_t key = l.bounds.begin(); key < l.bounds.end(); key += side) {
      const int64_t keys = std::min(side, l.bounds.end() - key);
      const Numbers k = in.k.from(heads + key * row);
      l.products.scores_of(q, l.bounds, key, keys, k, in.v.from(heads + key * row), l.p, l.ds);
      if (e_.softcap > 0) cap(keys, columns, l);
      if (relative_.acts()) relative_.add(q, key, keys, l.p, l.line);
      if (l.bounds.masks(key, keys)) {
        l.bounds.mask(q, key, keys, -__builtin_inff(), l.p);
        l.bounds.mask(q, key, keys, 0.0f, l.ds);
        if (e_.softcap > 0) l.bounds.mask(q, key, keys, 0.0f, l.slope);
      }
      if (dropout.acts()) dropout.fill(q, key, keys, l.factors);
      differentiate(keys, columns, dropout.acts(), l);
      l.bounds.clear_alone(key, keys, l.ds);
      if (l.by_distance) relative_.sum(q, key, keys, l.ds, l.line, l.by_distance);
      if (e_.softcap > 0)
        for (int64_t j = 0; j < keys; ++j)
          for (int64_t c = 0; c < columns; ++c) l.ds[j * side + c] *= l.slope[j * side + c];
      l.products.add_gradients(q, l.bounds, key, keys, k, l.p, l.ds, dk, dv, l.dq);
    }
    const float factor = l.products.dq_factor();
    for (int64_t d = 0; d < D; ++d)
      for (int64_t c = 0; c < columns; ++c) l.dq[d * side + c] *= factor;
    store_columns(q, D, l.dq, numbers_of(&node_.out(DQ)).from(e_.q_at(q.b, q.head, q.first)), e_.q_row(), l.products.buffer());
  }

  // Scores become capped ones, `slope` their derivative.
  void cap(int64_t keys, int64_t columns, Lane& l) const {
    const float most = static_cast<float>(e_.softcap);
    for (int64_t j = 0; j < keys; ++j) {
      float* __restrict p = l.p + j * side, * __restrict slope = l.slope + j * side;
      for (int64_t c = 0; c < columns; ++c) {
        const float t = tanh(p[c] / most);
        p[c] = most * t;
        slope[c] = 1.0f - t * t;
      }
    }
  }

  // From scores and dO·Vᵀ to what dv is made of, P∘M, and dS.
  static void differentiate(int64_t keys, int64_t columns, bool dropout, Lane& l) {
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
    const auto outputs = node_.view()->outputs;
    const AttentionOperands<Numbers> out = operands_of(e_, outputs[DQ], outputs[DK], outputs[DV]);
    const int64_t b = head / e_.kv_heads, kv_head = head % e_.kv_heads, row = e_.kv_row(), W = stride(e_);
    const int64_t to = e_.kv_at(b, kv_head, first);
    store_rows(sums + first * W, W, last - first, e_.D, out.k.from(to), row);
    store_rows(sums + (e_.Sk + first) * W, W, last - first, e_.D, out.v.from(to), row);
  }

  // The tasks' sums, over sequences and parts in order.
  void add_biases() const {
    float* dbias = node_.write<float>(DBias);
    const bool adds = node_.accumulates(DBias);
    for (int64_t h = 0; h < e_.heads; ++h)
      for (int64_t bucket = 0; bucket < e_.buckets; ++bucket) {
        double sum = 0;
        for (int64_t b = 0; b < e_.B; ++b)
          for (int64_t part = 0; part < division_.parts; ++part) {
            const int64_t t = (b * e_.kv_heads + h / e_.group()) * division_.parts + part;
            sum += static_cast<double>(biases(t)[h % e_.group() * e_.buckets + bucket]);
          }
        float& to = dbias[h * e_.buckets + bucket];
        to = (adds ? to : 0.0f) + static_cast<float>(sum);
      }
  }

  Node node_;
  AttentionExtents e_;
  Division division_;
  Workspace workspace_;
  float* begin_;
  Relative relative_;
};

const bool added = add(kernel_of<Gradient<InF32>>("attention_grad.blocks", "attention_grad"));
#if defined(GALLEY_CPU_LEVEL) && GALLEY_CPU_LEVEL >= 4
const bool added_words = add(kernel_of<Gradient<InWords>>("attention_grad.avx512_bf16", "attention_grad"));
#endif

}  // namespace
}  // namespace galley::cpu
