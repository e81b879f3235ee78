// Attention, causal: o = softmax(scale · q·kᵀ) · v over the keys that a query sees.
//
// q (B, S, heads·D), k and v (B, S, kv_heads·D); query head h reads key head h / (heads / kv_heads) (Ainslie et al., "GQA",
// arXiv:2305.13245). With k and v absent, q holds all three, (B, S, (heads + 2·kv_heads)·D), as GPT-2's c_attn makes them. Query i of
// sequence b sees key j where
//     max(first_key[b, i], i − window + 1) ≤ j ≤ i
// (no window: attribute 0): one bound for causality, documents and sliding windows, and no mask matrix. A query always sees itself.
//
// For backward, forward leaves lse (B, heads, S), the logarithm of each softmax's denominator, and no matrix of S × S: probabilities are
// made again from it (Dao, Fu, Ermon, Rudra, Ré: "FlashAttention", arXiv:2205.14135). Attribute `dropout` drops probabilities after the
// softmax, in training.
#include <vector>

#include "ops/attention/extents.hpp"

namespace {

using namespace galley::sdk;
using namespace galley::models;

// Indices of inputs. attention_grad goes on behind `random`.
enum : uint32_t { Q, K, V, FirstKey, Random, O, Lse, DO };

AttentionExtents check(const Node& n) {
  const AttentionExtents e = attention_extents(n);
  if (!e.packed)
    for (uint32_t i : {K, V}) {
      const galley_operand& t = n.in(i);
      if (t.rank != 3 || t.shape[0] != e.B || t.shape[1] != e.S || t.shape[2] != e.kv_columns())
        wrong(n, std::string(i == K ? "k" : "v") + " is " + shape_text(t) + "; beside q " + shape_text(n.in(Q)) + " and with " +
                     std::to_string(e.kv_heads) + " heads of " + std::to_string(e.D) + " it has to be (" + std::to_string(e.B) + ", " +
                     std::to_string(e.S) + ", " + std::to_string(e.kv_columns()) + ")");
    }
  integers(n, FirstKey, "first_key");
  const galley_operand& first = n.in(FirstKey);
  if (first.rank != 2 || first.shape[0] != e.B || first.shape[1] != e.S)
    wrong(n, "first_key is " + shape_text(first) + "; it has to be (" + std::to_string(e.B) + ", " + std::to_string(e.S) + ")");
  if (n.has(Random) && (n.in(Random).dtype != GALLEY_I64 || count(n.in(Random)) != 4))
    wrong(n, "random has to be I64 (4): seed, window, first row, 0");
  if (e.dropout > 0 && !n.has(Random)) wrong(n, "dropout = " + std::to_string(e.dropout) + ", but there is no input random to draw from");
  return e;
}

void cost_of(const AttentionExtents& e, double products, galley_cost& out) {
  out.flops = 2 * products * static_cast<double>(e.B * e.heads * e.D) * e.pairs();
}

// ---- The definition, one row of probabilities at a time ----

struct Row {
  int64_t b, h, i, first;
};

class Definition {
 public:
  explicit Definition(const Node& n)
      : e(attention_extents(n)),
        in(attention_inputs<double>(n, e)),
        first_key_(n.read<int32_t>(FirstKey)),
        random_(n.read<int64_t>(Random)) {
    if (e.dropout > 0) key_ = galley_random_key(random_, n.stream());
  }
  template <class Body>
  void rows(const Body& body) const {
    for (int64_t b = 0; b < e.B; ++b)
      for (int64_t h = 0; h < e.heads; ++h)
        for (int64_t i = 0; i < e.S; ++i) body(Row{b, h, i, e.first(i, first_key_[b * e.S + i])});
  }
  const double* q(const Row& r) const { return in.q + (r.b * e.S + r.i) * e.q_row() + r.h * e.D; }
  const double* k(const Row& r, int64_t j) const { return in.k + kv(r, j); }
  const double* v(const Row& r, int64_t j) const { return in.v + kv(r, j); }
  int64_t kv(const Row& r, int64_t j) const { return (r.b * e.S + j) * e.kv_row() + r.h / e.group() * e.D; }
  int64_t o(const Row& r) const { return (r.b * e.S + r.i) * e.q_columns() + r.h * e.D; }
  int64_t lse(const Row& r) const { return (r.b * e.heads + r.h) * e.S + r.i; }
  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (int64_t d = 0; d < e.D; ++d) sum += a[d] * b[d];
    return sum;
  }
  double score(const Row& r, int64_t j) const { return e.scale * dot(q(r), k(r, j)); }
  /// What dropout multiplies the probability of key j with.
  double kept(const Row& r, int64_t j) const {
    if (e.dropout == 0) return 1;
    const galley_philox_block block = galley_random_block(key_, random_[2] + r.b, r.i, attention_draw(r.h, j));
    return block.word[j % 4] >> 8 >= attention_threshold(e.dropout) ? 1 / (1 - e.dropout) : 0;
  }

  AttentionExtents e;
  AttentionOperands<const double> in;

 private:
  const int32_t* first_key_;
  const int64_t* random_;
  uint64_t key_ = 0;
};

// ---- Forward ----

void shape(const Node& n, Shapes& out) {
  const AttentionExtents e = check(n);
  out.like(0, n.in(Q), e.q_columns());
  out.set(1, GALLEY_F32, {e.B, e.heads, e.S});
}

void reference(const Node& n) {
  const Definition a(n);
  const int64_t D = a.e.D;
  double *o = n.write<double>(0), *lse = n.write<double>(1);
  std::vector<double> p(static_cast<size_t>(a.e.S));
  a.rows([&](const Row& r) {
    double largest = -HUGE_VAL, sum = 0;
    for (int64_t j = r.first; j <= r.i; ++j) largest = std::max(largest, p[static_cast<size_t>(j)] = a.score(r, j));
    for (int64_t j = r.first; j <= r.i; ++j) sum += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - largest);
    lse[a.lse(r)] = largest + std::log(sum);
    double* to = o + a.o(r);
    std::fill(to, to + D, 0.0);
    for (int64_t j = r.first; j <= r.i; ++j) {
      const double weight = p[static_cast<size_t>(j)] / sum * a.kept(r, j);
      for (int64_t d = 0; d < D; ++d) to[d] += weight * a.v(r, j)[d];
    }
  });
}

void gradient(Backward& b) {
  const bool packed = !b.node.inputs[K] && !b.node.inputs[V];
  if (b.d_outputs[1]) unsupported(std::string(b.node.name) + ": attention: lse has no gradient");
  if (!b.d_outputs[0] || !(b.needs(Q) || b.needs(K) || b.needs(V))) return;
  Attrs attrs = b.attrs();
  if (!b.attr("stream")) attrs.s("stream", b.node.name);  // the same draws
  const galley_tensor* in = b.node.inputs;
  // All three at once; what comes in is not added to, so what already holds something is left to the host to add.
  const auto target = [&](uint32_t i) { return b.needs(i) && !b.adds(i) ? b.d_inputs[i] : 0; };
  const std::string name = std::string(b.node.name) + ".grad";
  const std::vector<galley_tensor> d = b.graph.node(
      "attention_grad", name.c_str(), {in[Q], in[K], in[V], in[FirstKey], in[Random], b.node.outputs[0], b.node.outputs[1], b.d_outputs[0]},
      attrs, {target(Q), packed ? 0 : target(K), packed ? 0 : target(V)});
  for (uint32_t i : {Q, K, V})
    if (b.needs(i)) b.d_inputs[i] = d[i];
}

void cost(const Node& n, galley_cost& out) { cost_of(attention_extents(n), 2, out); }

// ---- Backward: with P = exp(s − lse) and M what dropout makes of 1,
//      dV = (P∘M)ᵀ·dO,  dP = (dO·Vᵀ)∘M,  dS = P∘(dP − Σ dO∘O),  dQ = scale·dS·K,  dK = scale·dSᵀ·Q ----

void grad_shape(const Node& n, Shapes& out) {
  const AttentionExtents e = check(n);
  for (uint32_t i : {O, DO}) {
    const galley_operand& t = n.in(i);
    if (t.rank != 3 || t.shape[0] != e.B || t.shape[1] != e.S || t.shape[2] != e.q_columns())
      wrong(n, std::string(i == O ? "o" : "do") + " is " + shape_text(t) + "; beside q " + shape_text(n.in(Q)) + " it has to have " +
                   std::to_string(e.q_columns()) + " columns");
  }
  if (count(n.in(Lse)) != e.B * e.heads * e.S) wrong(n, "lse is " + shape_text(n.in(Lse)) + "; it has to be (B, heads, S)");
  for (uint32_t i : {Q, K, V})
    if (n.has(i)) out.like(i, n.in(i));
    else out.absent(i);
}

void grad_reference(const Node& n) {
  const Definition a(n);
  const AttentionOperands<double> out = attention_outputs<double>(n, a.e);
  const double *o = n.read<double>(O), *lse = n.read<double>(Lse), *go = n.read<double>(DO);
  for (uint32_t i = 0; i < 3; ++i)
    if (n.has_out(i)) std::fill_n(n.write<double>(i), count(n.out(i)), 0.0);
  a.rows([&](const Row& r) {
    const double *q = a.q(r), *dor = go + a.o(r), delta = a.dot(dor, o + a.o(r));
    double* dq = out.q + (q - a.in.q);
    for (int64_t j = r.first; j <= r.i; ++j) {
      const double p = std::exp(a.score(r, j) - lse[a.lse(r)]), m = a.kept(r, j);
      const double ds = a.e.scale * p * (m * a.dot(dor, a.v(r, j)) - delta);
      const double* k = a.k(r, j);
      double *dk = out.k + a.kv(r, j), *dv = out.v + a.kv(r, j);
      for (int64_t d = 0; d < a.e.D; ++d) {
        dq[d] += ds * k[d];
        dk[d] += ds * q[d];
        dv[d] += p * m * dor[d];
      }
    }
  });
}

void grad_cost(const Node& n, galley_cost& out) { cost_of(attention_extents(n), 5, out); }

// ---- Tables. Sequences shorter than a block, longer, and of no round length; heads of odd size; groups; documents and windows ----

constexpr uint32_t F = GALLEY_F32, I = GALLEY_I32;

CaseInput first_key(int64_t B, int64_t S, double high) { return {I, {B, S}, 0, high}; }
CaseInput none() { return {0, {}}; }
CaseInput draws() { return {GALLEY_I64, {4}, 0, 100000}; }
Attrs heads(int64_t n, int64_t kv, int64_t D) { return Attrs().i("heads", n).i("kv_heads", kv).i("head_dim", D); }

// The case of the forward op and, as o, lse and do are free inputs of backward, of attention_grad with the same q, k and v.
std::vector<CaseInput> with_grad(std::vector<CaseInput> in, int64_t B, int64_t S, int64_t n, int64_t D, double range) {
  in.push_back({F, {B, S, n * D}});
  in.push_back({F, {B, n, S}, 3 * range, 4 * range});
  in.push_back({F, {B, S, n * D}});
  return in;
}

Op attention("attention",
             "o = softmax(scale·q·kᵀ)·v, causal; q (B, S, heads·D), k, v (B, S, kv_heads·D) or packed in q, first_key (B, S), o (B, S, "
             "heads·D), lse (B, heads, S)");
Op attention_grad("attention_grad", "dq, dk, dv of attention from q, k, v, o, lse and do; shapes as there");

void cases() {
  const auto both = [](const char* name, int64_t B, int64_t S, int64_t n, int64_t kv, int64_t D, bool packed, double documents,
                       const auto& more, double range = 1) {
    std::vector<CaseInput> in;
    if (packed) in = {{F, {B, S, (n + 2 * kv) * D}, -range, range}, none(), none()};
    else in = {{F, {B, S, n * D}, -range, range}, {F, {B, S, kv * D}, -range, range}, {F, {B, S, kv * D}}};
    in.push_back(first_key(B, S, documents));
    in.push_back(draws());
    Attrs a = heads(n, kv, D), g = heads(n, kv, D);
    more(a), more(g);
    attention.test(name, in, std::move(a), S);
    attention_grad.test(name, with_grad(in, B, S, n, D, range), std::move(g), S);
  };
  const auto plain = [](Attrs&) {};
  both("one position", 2, 1, 2, 2, 4, false, 0, plain);
  both("small", 2, 9, 2, 2, 8, false, 0, plain);
  both("small packed", 2, 9, 2, 1, 6, true, 0, plain);
  both("documents", 2, 21, 4, 2, 5, false, 20, plain);
  both("window", 1, 40, 2, 1, 20, false, 0, [](Attrs& a) { a.i("window", 7); });
  both("window and documents", 2, 150, 2, 2, 24, true, 100, [](Attrs& a) { a.i("window", 70).f("scale", 0.3); });
  both("groups", 1, 131, 9, 3, 24, false, 0, plain);
  both("blocks", 1, 200, 2, 2, 64, true, 0, plain);
  both("wide heads", 1, 70, 2, 1, 129, false, 0, plain);
  both(
      "steep", 1, 100, 1, 1, 16, false, 30, [](Attrs& a) { a.f("scale", 1.0); }, 2);
  both("dropout", 2, 19, 3, 1, 8, false, 5, [](Attrs& a) { a.f("dropout", 0.25).s("stream", "model.attention"); });
  both("dropout over blocks", 3, 133, 2, 2, 20, true, 60, [](Attrs& a) { a.f("dropout", 0.1); });
}

bool registered() {
  cases();
  const auto operands = [](Op& op) -> Op& {
    return op.input("q", GALLEY_ROLE_WHOLE)
        .input("k", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
        .input("v", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
        .input("first_key", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
        .input("random", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_NO_GRADIENT)
        .flags(GALLEY_OP_RANDOM);
  };
  operands(attention)
      .output("o", GALLEY_ROLE_WHOLE)
      .output("lse", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .infer<shape>()
      .gradient<gradient>()
      .cost<cost>()
      .reference<reference>();
  operands(attention_grad)
      .input("o", GALLEY_ROLE_WHOLE)
      .input("lse", GALLEY_ROLE_WHOLE)
      .input("do", GALLEY_ROLE_WHOLE)
      .output("dq", GALLEY_ROLE_WHOLE)
      .output("dk", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
      .output("dv", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL)
      .infer<grad_shape>()
      .cost<grad_cost>()
      .reference<grad_reference>();
  return add(attention) && add(attention_grad);
}
const bool added = registered();

}  // namespace
