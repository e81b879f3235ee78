// Attention: o = softmax(s) · v over the keys that a query sees, one contract for every model and every device.
//
// Operands. q (B, Sq, heads·D), k and v (B, Sk, kv_heads·D); query head h reads key head h / (heads / kv_heads) (Ainslie et al., "GQA",
// arXiv:2305.13245). With k and v absent, q holds all three, (B, S, (heads + 2·kv_heads)·D), as GPT-2's c_attn makes them, or, with
// by_head = 1, (B, S, heads, 3, D), the three of each head beside each other, as BLOOM and GPT-NeoX store query_key_value. A head's D
// numbers lie side by side and heads in a row, as linear layers write them: kernels take the distance of rows as a stride (as cuDNN and
// FlashAttention do), and those that want a head's rows together copy a block at a time, which conversion from 16 bit does anyway. Heads
// before rows, (B, heads, S, D), would save that copy and cost two transpositions of o and its gradient.
//
// What is seen. Query i stands at key i' = i + Sk − Sq, the last query at the last key. It sees key j where first ≤ j ≤ last:
//     first = first_key[b, i], or 0 where that input is absent
//     last  = last_key[b, i], or, where that is absent, i' if `causal` (the default), else Sk − 1
// and, with a window W (0: none), i' − W < j and, unless causal, j < i' + W. So two bounds say causality, documents, padding on either
// side, prefixes that are seen whole and sliding windows, and there is no mask matrix. Without both, a kernel knows when planning that a
// row is plain. last_key stands in the place of the causal bound, it is not a second one. A query that sees no key (bounds that leave
// none; Sk < Sq) has o = 0, lse = −∞, and no gradient comes from it.
//
// The score of query i and key j, in this order:
//     s = scale · q·k                                  scale: 1/√D
//     s = softcap · tanh(s / softcap)                  unless softcap is 0 (Gemma 2, arXiv:2408.00118)
//     s = s + slopes[h] · (j − i')                     ALiBi (Press et al., arXiv:2108.12409); slopes (heads) are constants
//     s = s + bias[h, bucket(j − i')]                  T5 (Raffel et al., arXiv:1910.10683); bias (heads, buckets) is learned, its gradient
//                                                      can be added to. max_distance: 128; bidirectional: unless causal
// Attribute `dropout` drops probabilities after the softmax, in training; attention_draw() says which.
//
// Dtypes. q, k, v, o and do are in the compute dtype, o, dq, dk and dv in what the attribute "dtype" asks for; lse, slopes, bias and its
// gradient are F32. Softmax and all sums are F32 or better. delta = Σ do∘o is of o as it is stored: docs/decisions.md says what that costs.
//
// For backward, forward leaves lse (B, heads, Sq), the logarithm of each softmax's denominator, and no matrix of Sq × Sk: probabilities
// are made again from it (Dao, Fu, Ermon, Rudra, Ré: "FlashAttention", arXiv:2205.14135).
#include <vector>

#include "ops/attention/cases.hpp"
#include "ops/attention/definition.hpp"
#include "ops/cache/coded.hpp"

namespace galley::models::attention_op {
namespace {

using namespace sdk;
using namespace models::attention_input;
using namespace models::attention_output;

std::string one_a_query(const AttentionExtents& e) { return "it has to be (" + std::to_string(e.B) + ", " + std::to_string(e.Sq) + ")"; }

/// `random`: the input after the biases is that of random numbers; else k and v are caches, which may be in 8 bit.
AttentionExtents check(const Node& n, bool random = true) {
  const AttentionExtents e = attention_extents(n);
  numbers(n, Q, "q");
  if (!e.packed)
    for (uint32_t i : {K, V}) {
      const char* name = i == K ? "k" : "v";
      const galley_operand& t = n.in(i);
      if (t.rank != 3 || t.shape[0] != e.B || t.shape[1] != e.Sk || t.shape[2] != e.kv_columns())
        wrong(n, std::string(name) + " is " + shape_text(t) + "; beside q " + shape_text(n.in(Q)) +
                     (i == V ? ", k " + shape_text(n.in(K)) : "") + " and with " + std::to_string(e.kv_heads) + " heads of " +
                     std::to_string(e.D) + " it has to be (" + std::to_string(e.B) + ", " + (i == V ? std::to_string(e.Sk) : "keys") +
                     ", " + std::to_string(e.kv_columns()) + ")");
      if (random || n.in(i).dtype != GALLEY_I8) one_dtype(n, Q, "q", i, name);
    }
  for (uint32_t i : {FirstKey, LastKey}) {
    if (!n.has(i)) continue;
    const char* name = i == FirstKey ? "first_key" : "last_key";
    integers(n, i, name);
    const galley_operand& t = n.in(i);
    if (t.rank != 2 || t.shape[0] != e.B || t.shape[1] != e.Sq)
      wrong(n, std::string(name) + " is " + shape_text(t) + "; " + one_a_query(e));
  }
  vector_of(n, Slopes, "slopes", e.heads);
  for (uint32_t i : {Slopes, Bias})
    if (n.has(i) && n.in(i).dtype != GALLEY_F32) wrong(n, std::string(i == Slopes ? "slopes" : "bias") + " has to be F32");
  if (n.has(Bias) && (n.in(Bias).rank != 2 || n.in(Bias).shape[0] != e.heads))
    wrong(n, "bias is " + shape_text(n.in(Bias)) + "; it has to be (" + std::to_string(e.heads) + ", buckets)");
  if (random && n.has(Random) && (n.in(Random).dtype != GALLEY_I64 || count(n.in(Random)) != 4))
    wrong(n, "random has to be I64 (4): seed, window, first row, 0");
  if (e.dropout > 0 && !n.has(Random)) wrong(n, "dropout = " + std::to_string(e.dropout) + ", but there is no input random to draw from");
  return e;
}

void cost_of(const AttentionExtents& e, double products, galley_cost& out) {
  out.flops = 2 * products * static_cast<double>(e.B * e.heads * e.D) * e.pairs();
}

// ---- Forward ----

void shape(const Node& n, Shapes& out) {
  const AttentionExtents e = check(n);
  out.set(0, n.dtype(n.in(Q).dtype), {e.B, e.Sq, e.q_columns()});
  out.set(1, GALLEY_F32, {e.B, e.heads, e.Sq});
}

void reference_of(const Node& n, const AttentionDefinition& a) {
  const int64_t D = a.e.D;
  double *o = n.write<double>(0), *lse = n.write<double>(1);
  std::vector<double> p(static_cast<size_t>(a.e.Sk));
  a.rows([&](const AttentionDefinition::Row& r) {
    double largest = -HUGE_VAL, sum = 0;
    for (int64_t j = r.first; j <= r.last; ++j) largest = std::max(largest, p[static_cast<size_t>(j)] = a.score(r, j).value);
    for (int64_t j = r.first; j <= r.last; ++j) sum += p[static_cast<size_t>(j)] = std::exp(p[static_cast<size_t>(j)] - largest);
    lse[a.lse(r)] = largest + std::log(sum);  // −∞ where no key is seen
    double* to = o + a.o(r);
    std::fill(to, to + D, 0.0);
    for (int64_t j = r.first; j <= r.last; ++j) {
      const double weight = p[static_cast<size_t>(j)] / sum * a.kept(r, j);
      for (int64_t d = 0; d < D; ++d) to[d] += weight * a.v(r, j)[d];
    }
  });
}

void reference(const Node& n) { reference_of(n, AttentionDefinition(n)); }

void gradient(Backward& b) {
  const galley_node_info& n = b.node;
  const auto in = [&](uint32_t i) { return i < n.n_inputs ? n.inputs[i] : 0; };
  if (b.d_outputs[1]) unsupported(std::string(n.name) + ": attention: lse has no gradient");
  if (!b.d_outputs[0] || !(b.needs(Q) || b.needs(K) || b.needs(V) || b.needs(Bias))) return;
  Attrs attrs;
  for (uint32_t k = 0; k < n.n_attrs; ++k)
    if (!galley_same_text(n.attrs[k]->name, "dtype")) attrs.copy(*n.attrs[k]);  // that is what o is written in
  if (!b.attr("stream")) attrs.s("stream", n.name);                             // the same draws
  if (b.needs(Bias)) attrs.i("dbias", 1);
  // dq, dk and dv at once; what comes in is not added to, so what already holds something is left to the host to add.
  const auto target = [&](uint32_t i) { return b.needs(i) && !b.adds(i) ? b.d_inputs[i] : 0; };
  const bool packed = !in(K) && !in(V);
  const std::string name = std::string(n.name) + ".grad";
  const std::vector<galley_tensor> d = b.graph.node(
      "attention_grad", name.c_str(),
      {in(Q), in(K), in(V), in(FirstKey), in(LastKey), in(Slopes), in(Bias), in(Random), n.outputs[0], n.outputs[1], b.d_outputs[0]}, attrs,
      {target(Q), packed ? 0 : target(K), packed ? 0 : target(V), b.needs(Bias) ? b.d_inputs[Bias] : 0},
      {0, 0, 0, b.needs(Bias) && b.adds(Bias)});
  for (uint32_t i : {Q, K, V})
    if (b.needs(i)) b.d_inputs[i] = d[i];
  if (b.needs(Bias)) b.d_inputs[Bias] = d[DBias];
}

void cost(const Node& n, galley_cost& out) { cost_of(attention_extents(n), 2, out); }

// ---- Backward: with P = exp(s − lse) and M what dropout makes of 1,
//      dV = (P∘M)ᵀ·dO,  dP = (dO·Vᵀ)∘M,  dS = P∘(dP − Σ dO∘O), exactly 0 where a query sees one key,  dbias[bucket] = Σ dS,
//      dX = scale·(1 − tanh²)∘dS (the second factor with a softcap),  dQ = dX·K,  dK = dXᵀ·Q ----

void grad_shape(const Node& n, Shapes& out) {
  const AttentionExtents e = check(n);
  for (uint32_t i : {O, DO}) {
    const galley_operand& t = n.in(i);
    const char* name = i == O ? "o" : "do";
    if (t.rank != 3 || t.shape[0] != e.B || t.shape[1] != e.Sq || t.shape[2] != e.q_columns())
      wrong(n, std::string(name) + " is " + shape_text(t) + "; beside q " + shape_text(n.in(Q)) + " it has to have " +
                   std::to_string(e.q_columns()) + " columns");
    numbers(n, i, name);
  }
  if (n.in(Lse).dtype != GALLEY_F32 || count(n.in(Lse)) != e.B * e.heads * e.Sq)
    wrong(n, "lse is " + shape_text(n.in(Lse)) + "; it has to be (B, heads, Sq) in F32");
  for (uint32_t i : {Q, K, V})
    if (n.has(i)) out.set(i, n.dtype(n.in(Q).dtype), n.in(i).shape, n.in(i).rank);
    else out.absent(i);
  if (n.i("dbias", 0) && n.has(Bias)) out.like(DBias, n.in(Bias));
  else out.absent(DBias);
}

void grad_reference(const Node& n) {
  const AttentionDefinition a(n);
  const AttentionOperands<double*> out = attention_operands(a.e, n.write<double>(DQ), n.write<double>(DK), n.write<double>(DV));
  const double *o = n.read<double>(O), *lse = n.read<double>(Lse), *go = n.read<double>(DO);
  double* dbias = n.write<double>(DBias);
  for (uint32_t i : {DQ, DK, DV, DBias})
    if (n.has_out(i)) std::fill_n(n.write<double>(i), count(n.out(i)), 0.0);
  a.rows([&](const AttentionDefinition::Row& r) {
    const double *q = a.q(r), *dor = go + a.o(r), delta = a.dot(dor, o + a.o(r));
    double* dq = out.q + (q - a.in.q);
    for (int64_t j = r.first; j <= r.last; ++j) {
      const AttentionDefinition::Pair pair = a.pair(r, j, lse[a.lse(r)], dor, delta);
      const double* k = a.k(r, j);
      double *dk = out.k + a.kv(r, j), *dv = out.v + a.kv(r, j);
      if (dbias) dbias[a.entry(r, j)] += pair.ds;
      for (int64_t d = 0; d < a.e.D; ++d) {
        dq[d] += pair.dx * k[d];
        dk[d] += pair.dx * q[d];
        dv[d] += pair.weight * dor[d];
      }
    }
  });
}

void grad_cost(const Node& n, galley_cost& out) { cost_of(attention_extents(n), 5, out); }

// ---- With a cache: generation keeps the keys and values of all positions, and asks with the queries of new ones ----

void cached_shape(const Node& n, Shapes& out) {
  const AttentionExtents e = check(n, false);
  integers(n, Start, "start");
  vector_of(n, Start, "start", e.B);
  coded_cache::check_scales(n, K, "k", KScales, "k_scales");
  coded_cache::check_scales(n, V, "v", VScales, "v_scales");
  if (e.Sk < e.Sq)
    wrong(n, "k is " + shape_text(n.in(K)) + "; the cache has to have a place for each of the queries in q " + shape_text(n.in(Q)));
  out.set(0, n.dtype(n.in(Q).dtype), {e.B, e.Sq, e.q_columns()});
  out.set(1, GALLEY_F32, {e.B, e.heads, e.Sq});
}

/// Keys or values, which a cache in 8 bit has as codes with scales.
std::vector<double> numbers_of(const Node& n, uint32_t cache, uint32_t scales) {
  const int64_t size = count(n.in(cache)), C = columns(n.in(cache)), blocks = coded_cache::blocks(C);
  if (!n.has(scales)) return {n.read<double>(cache), n.read<double>(cache) + size};
  std::vector<double> out;
  for (int64_t i = 0; i < size; ++i)
    out.push_back(n.read<int8_t>(cache)[i] * n.read<double>(scales)[i / C * blocks + i % C / coded_cache::kBlock] / 127);
  return out;
}

void cached_reference(const Node& n) {
  const std::vector<double> k = numbers_of(n, K, KScales), v = numbers_of(n, V, VScales);
  reference_of(n, {n, k.data(), v.data(), n.read<int32_t>(Start)});
}

// ---- Tables ----

Op attention("attention",
             "o = softmax(scale·q·kᵀ + biases)·v over the keys from first_key to last_key; q (B, Sq, heads·D), k, v (B, Sk, kv_heads·D) or "
             "packed in q, first_key, last_key (B, Sq), slopes (heads), bias (heads, buckets), o (B, Sq, heads·D), lse (B, heads, Sq)");
Op cached_attention(
    "cached_attention",
    "as attention, of queries of which the first of each sequence stands at key start[b]; q (B, Sq, heads·D), k, v (B, L, "
    "kv_heads·D), start (B) I32; what k and v hold after a query's own key is not read; with k_scales and v_scales (B, L, kv_heads·D / "
    "32 rounded up) BF16, k and v hold codes in I8");
Op attention_grad("attention_grad", "dq, dk, dv and dbias of attention from its inputs, o, lse and do; shapes as there");

bool registered() {
  constexpr uint64_t optional = GALLEY_OPERAND_OPTIONAL, constant = GALLEY_OPERAND_NO_GRADIENT, compute = GALLEY_OPERAND_COMPUTE;
  const auto heads = [](Op& op, uint64_t keys) -> Op& {
    return op.input("q", GALLEY_ROLE_WHOLE, compute)
        .input("k", GALLEY_ROLE_WHOLE, compute | keys)
        .input("v", GALLEY_ROLE_WHOLE, compute | keys)
        .input("first_key", GALLEY_ROLE_WHOLE, optional | constant)
        .input("last_key", GALLEY_ROLE_WHOLE, optional | constant)
        .input("slopes", GALLEY_ROLE_WHOLE, optional | constant)
        .input("bias", GALLEY_ROLE_WHOLE, optional)
        .attr("heads", GALLEY_ATTR_I64, GALLEY_ATTR_REQUIRED, "of q")
        .attr("kv_heads", GALLEY_ATTR_I64, 0, "of k and v; without it, heads")
        .attr("head_dim", GALLEY_ATTR_I64, 0, "elements of a head; without it, what the columns of q leave for each");
  };
  const auto scores = [](Op& op) -> Op& {
    return op.attr("scale", GALLEY_ATTR_F64, 0, "of scores; without it, 1 / √head_dim")
        .number("softcap", 0, "scores are softcap · tanh(score / softcap); 0: they are not")
        .integer("window", 0, "how many keys a query sees, its own the last; 0: all");
  };
  const auto operands = [&](Op& op) -> Op& {
    heads(op, optional)
        .input("random", GALLEY_ROLE_WHOLE, optional | constant)
        .integer("by_head", 0, "1: packed, q holds q, k and v of each head beside each other")
        .integer("causal", 1, "1: a query sees no later keys");
    return scores(op)
        .number("dropout", 0, "the probability of dropping a weight, in training")
        .integer("max_distance", 128, "from which on distances share a bucket of bias")
        .attr("bidirectional", GALLEY_ATTR_I64, 0, "1: half of the buckets are for later keys; without it, if it is not causal")
        .flags(GALLEY_OP_RANDOM | GALLEY_OP_LOW);
  };
  attention_cases(attention, attention_grad);
  operands(attention)
      .output("o", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .output("lse", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .infer<shape>()
      .gradient<gradient>()
      .cost<cost>()
      .reference<reference>();
  operands(attention_grad)
      .input("o", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_COMPUTE)
      .input("lse", GALLEY_ROLE_WHOLE)
      .input("do", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_COMPUTE)
      .output("dq", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .output("dk", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_ANY_DTYPE)
      .output("dv", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_ANY_DTYPE)
      .output("dbias", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_OPTIONAL | GALLEY_OPERAND_ACCUMULATES)
      .integer("dbias", 0, "1: there is a dbias")
      .infer<grad_shape>()
      .cost<grad_cost>()
      .reference<grad_reference>();
  cached_attention_cases(cached_attention);
  heads(cached_attention, 0)
      .input("start", GALLEY_ROLE_WHOLE, constant)
      .input("k_scales", GALLEY_ROLE_WHOLE, optional | constant)
      .input("v_scales", GALLEY_ROLE_WHOLE, optional | constant);
  scores(cached_attention)
      .integer("max_distance", 128, "from which on distances share a bucket of bias")
      .flags(GALLEY_OP_LOW | GALLEY_OP_PRIVATE)
      .output("o", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_ANY_DTYPE)
      .output("lse", GALLEY_ROLE_WHOLE, GALLEY_OPERAND_NO_GRADIENT)
      .infer<cached_shape>()
      .cost<cost>()
      .reference<cached_reference>();
  return add(attention) && add(attention_grad) && add(cached_attention);
}
const bool added = registered();

}  // namespace
}  // namespace galley::models::attention_op
