// Test cases of attention and attention_grad: sequences shorter than a block of 64, longer, and of no round length; heads of odd size;
// each feature by itself, and together.
#pragma once

#include <list>
#include <optional>
#include <string>
#include <vector>

#include "galley/cpp/plugin.hpp"
#include "ops/cache/coded.hpp"

namespace galley::models {

struct AttentionCase {
  struct Range {
    double low, high;
  };
  int64_t B, Sq, Sk, heads, kv_heads, D;
  bool packed = false;
  std::optional<Range> first_key = {}, last_key = {};
  bool slopes = false;
  int64_t buckets = 0;
  double range = 1;  ///< of q and k
  uint32_t dtype = GALLEY_F32;
  bool by_head = false;
};

/// The case of the forward op, and of attention_grad with the same inputs: do is drawn, too, o and lse are what forward makes.
template <class More>
void attention_case(sdk::Op& forward, sdk::Op& backward, const char* name, const AttentionCase& c, const More& more) {
  using sdk::CaseInput;
  constexpr uint32_t F = GALLEY_F32, I = GALLEY_I32;
  const CaseInput none{0, {}};
  const auto bound = [&](const std::optional<AttentionCase::Range>& r) { return r ? CaseInput{I, {c.B, c.Sq}, r->low, r->high} : none; };
  const int64_t slots = c.packed ? c.heads + 2 * c.kv_heads : c.heads;
  std::vector<CaseInput> in = {
      {c.dtype, {c.B, c.Sq, slots * c.D}, -c.range, c.range},
      c.packed ? none : CaseInput{c.dtype, {c.B, c.Sk, c.kv_heads * c.D}, -c.range, c.range},
      c.packed ? none : CaseInput{c.dtype, {c.B, c.Sk, c.kv_heads * c.D}},
      bound(c.first_key),
      bound(c.last_key),
      c.slopes ? CaseInput{F, {c.heads}, 0.005, 0.05} : none,
      c.buckets ? CaseInput{F, {c.heads, c.buckets}} : none,
      {GALLEY_I64, {4}, 0, 100000},
  };
  const auto attrs = [&] {
    sdk::Attrs a;
    a.i("heads", c.heads).i("kv_heads", c.kv_heads).i("head_dim", c.D).s("stream", "model.attention");
    if (c.by_head) a.i("by_head", 1);
    more(a);
    return a;
  };
  forward.test(name, in, attrs(), c.Sq);
  in.push_back({c.dtype, {c.B, c.Sq, c.heads * c.D}});
  in.push_back({F, {c.B, c.heads, c.Sq}, 3 * c.range, 4 * c.range});
  in.push_back({c.dtype, {c.B, c.Sq, c.heads * c.D}});
  sdk::Attrs a = attrs();
  if (c.buckets) a.i("dbias", 1);
  backward.test(name, in, std::move(a), c.Sq);
}

inline void attention_cases(sdk::Op& forward, sdk::Op& backward) {
  using sdk::Attrs;
  using Range = AttentionCase::Range;
  const auto with = [&](const char* name, const AttentionCase& c, const auto& more) { attention_case(forward, backward, name, c, more); };
  const auto both = [&](const char* name, const AttentionCase& c) { with(name, c, [](Attrs&) {}); };
  const auto everything = [](Attrs& a) { a.i("causal", 0); };

  // Rows of one document: nothing but the diagonal.
  both("one position", {2, 1, 1, 2, 2, 4});
  both("small", {2, 9, 9, 2, 2, 8});
  both("small packed", {2, 9, 9, 2, 1, 6, true});
  both("groups", {1, 131, 131, 9, 3, 24});
  both("blocks", {1, 200, 200, 2, 2, 64, true});
  both("heads of 96", {1, 40, 40, 2, 1, 96});
  both("heads of 128", {1, 75, 75, 2, 1, 128, true});
  both("heads of 256", {1, 35, 35, 1, 1, 256});
  both("wide heads", {1, 70, 70, 2, 1, 129});
  // Bounds. Random ones leave queries that see nothing.
  both("documents", {2, 21, 21, 4, 2, 5, false, Range{0, 20}});
  both("documents over blocks", {2, 150, 150, 2, 1, 12, true, Range{-3, 80}});
  both("ends", {2, 37, 37, 2, 2, 7, false, {}, Range{-2, 40}});
  both("both bounds", {2, 140, 140, 2, 1, 9, false, Range{0, 130}, Range{-1, 150}});
  both("prefixes", {1, 100, 100, 2, 2, 16, false, {}, Range{70, 99}});
  with("window", {1, 40, 40, 2, 1, 20, false, Range{0, 0}}, [](Attrs& a) { a.i("window", 7); });
  with("window and documents", {2, 150, 150, 2, 2, 24, true, Range{0, 100}}, [](Attrs& a) { a.i("window", 70).f("scale", 0.3); });
  with("window and ends", {1, 90, 90, 2, 1, 8, false, {}, Range{0, 89}}, [](Attrs& a) { a.i("window", 30); });
  // More keys than queries, fewer, and no causality.
  both("more keys", {2, 40, 105, 2, 1, 10});
  both("fewer keys", {1, 105, 40, 2, 2, 10});
  // q, k and v of each head beside each other.
  const auto by_head = [](AttentionCase c) {
    c.packed = c.by_head = true;
    return c;
  };
  both("by head", by_head({2, 9, 9, 3, 3, 5}));
  both("by head over blocks", by_head({1, 90, 90, 2, 2, 20, false, Range{0, 60}}));
  both("by head with slopes", by_head({1, 70, 70, 3, 3, 8, false, Range{0, 40}, {}, true}));
  with("by head, everything", by_head({1, 40, 40, 2, 2, 33, false, {}, Range{20, 39}}), everything);
  with("everything", {1, 70, 70, 2, 1, 16, true}, everything);
  with("everything of another", {2, 37, 130, 4, 2, 8}, everything);
  with("window both ways", {1, 140, 140, 2, 2, 8}, [](Attrs& a) { a.i("causal", 0).i("window", 9); });
  with("window both ways, more keys", {1, 70, 90, 2, 2, 8, false, Range{0, 40}}, [](Attrs& a) { a.i("causal", 0).i("window", 30); });
  with("padding", {2, 30, 67, 2, 2, 8, false, Range{0, 9}, Range{50, 66}}, everything);
  // What is done to scores.
  with("steep", {1, 100, 100, 1, 1, 16, false, Range{0, 30}, {}, false, 0, 1.5}, [](Attrs& a) { a.f("scale", 1.0); });
  // What several features make together: ALiBi in documents and with padding; T5's biases without a scale, of a decoder and of an encoder
  // with padding; a decoder's look at the padded source; local layers that do not look ahead, and that do; Gemma 2's local layers.
  both("slopes in documents", {1, 80, 80, 3, 3, 7, false, Range{0, 60}, {}, true});
  with("slopes and padding", {2, 40, 40, 2, 2, 8, false, Range{0, 9}, Range{20, 39}, true}, everything);
  with("biases without a scale", {2, 40, 40, 2, 2, 8, false, Range{0, 30}, {}, false, 32}, [](Attrs& a) { a.f("scale", 1); });
  with("biases of an encoder", {1, 70, 70, 3, 3, 5, false, {}, Range{40, 69}, false, 32},
       [](Attrs& a) { a.i("causal", 0).f("scale", 1).i("bidirectional", 1); });
  with("a padded source", {2, 21, 75, 2, 2, 8, false, {}, Range{-1, 74}}, [](Attrs& a) { a.i("causal", 0).f("scale", 1); });
  with("local without a scale", {1, 100, 100, 2, 2, 12, false, Range{0, 50}}, [](Attrs& a) { a.i("window", 33).f("scale", 1); });
  with("local both ways and padding", {1, 80, 80, 2, 1, 8, false, Range{0, 5}, Range{50, 79}},
       [](Attrs& a) { a.i("causal", 0).i("window", 17); });
  with("cap and window", {1, 90, 90, 2, 1, 16, false, Range{0, 60}, {}, false, 0, 3},
       [](Attrs& a) { a.f("softcap", 2.5).i("window", 40).f("scale", 0.3); });
  both("slopes", {2, 100, 100, 4, 2, 8, false, {}, {}, true});
  with("slopes both ways", {1, 30, 70, 2, 2, 8, false, {}, {}, true}, everything);
  both("biases", {2, 90, 90, 2, 1, 8, false, {}, {}, false, 32});
  with("biases both ways", {2, 70, 100, 4, 2, 8, false, Range{0, 20}, {}, false, 12},
       [](Attrs& a) { a.i("causal", 0).i("max_distance", 40); });
  with("cap", {1, 100, 100, 2, 2, 16, true, {}, {}, false, 0, 3}, [](Attrs& a) { a.f("softcap", 2.5).f("scale", 0.5); });
  with("dropout", {2, 19, 19, 3, 1, 8, false, Range{0, 5}}, [](Attrs& a) { a.f("dropout", 0.25); });
  with("dropout over blocks", {3, 133, 133, 2, 2, 20, true, Range{0, 60}}, [](Attrs& a) { a.f("dropout", 0.1); });
  const auto all = [](Attrs& a) { a.f("softcap", 1.5).f("dropout", 0.2).i("window", 50).i("max_distance", 60); };
  with("all at once", {2, 80, 110, 4, 2, 9, false, Range{0, 70}, Range{20, 120}, true, 10}, all);
  with("all at once, causal", {1, 140, 140, 4, 2, 9, true, Range{0, 70}, {}, true, 10}, all);

  // 16 bit.
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
    const bool b = dtype == GALLEY_BF16;
    both(b ? "small, bf16" : "small, f16", {2, 9, 9, 2, 2, 7, false, {}, {}, false, 0, 1, dtype});
    both(b ? "blocks, bf16" : "blocks, f16", {1, 140, 140, 2, 1, 64, true, Range{0, 90}, {}, false, 0, 1, dtype});
    with(b ? "everything, bf16" : "everything, f16", {1, 70, 100, 2, 2, 24, false, {}, {}, false, 0, 1, dtype}, everything);
    with(b ? "all at once, bf16" : "all at once, f16", {2, 80, 110, 4, 2, 9, false, Range{0, 70}, Range{20, 120}, true, 10, 1, dtype}, all);
    with(b ? "by head, bf16" : "by head, f16", by_head({1, 80, 80, 2, 2, 24, false, Range{0, 50}, {}, true, 0, 1, dtype}), everything);
    both(b ? "odd by head, bf16" : "odd by head, f16", by_head({1, 40, 40, 3, 3, 7, false, {}, {}, false, 0, 1, dtype}));
    with(b ? "cap and window, bf16" : "cap and window, f16", {1, 90, 90, 2, 1, 16, false, Range{0, 60}, {}, false, 0, 3, dtype},
         [](Attrs& a) { a.f("softcap", 2.5).i("window", 40).f("scale", 0.3); });
    both(b ? "heads of 96, bf16" : "heads of 96, f16", {1, 80, 80, 2, 1, 96, true, {}, {}, false, 0, 1, dtype});
    both(b ? "heads of 128, bf16" : "heads of 128, f16", {1, 150, 150, 2, 1, 128, false, {}, {}, false, 0, 1, dtype});
    both(b ? "heads of 256, bf16" : "heads of 256, f16", {1, 70, 70, 2, 1, 256, false, {}, {}, false, 0, 1, dtype});
    with(b ? "bf16 to f32" : "f16 to f32", {1, 20, 20, 2, 1, 16, true, {}, {}, false, 0, 1, dtype}, [](Attrs& a) { a.s("dtype", "f32"); });
  }
  // Rows of one document, of lengths that a library's fused engines take.
  both("whole blocks", {3, 128, 128, 8, 4, 8, false, {}, {}, false, 0, 1, GALLEY_BF16});
  both("whole blocks packed", {1, 128, 128, 16, 2, 8, true, {}, {}, false, 0, 1, GALLEY_F16});
  both("whole blocks by head", by_head({1, 128, 128, 2, 2, 8, false, {}, {}, false, 0, 1, GALLEY_BF16}));
  with("f32 to bf16", {1, 20, 20, 2, 1, 16}, [](Attrs& a) { a.s("dtype", "bf16"); });
}

/// Cases of cached_attention: new positions at the begin of a cache, within it and at its end.
inline void cached_attention_cases(sdk::Op& op) {
  using sdk::Attrs;
  using sdk::CaseInput;
  const auto with = [&](const char* name, const AttentionCase& c, double low, double high, const auto& more) {
    constexpr uint32_t F = GALLEY_F32, I = GALLEY_I32;
    const CaseInput none{0, {}};
    const auto attrs = [&] {
      Attrs a;
      a.i("heads", c.heads).i("kv_heads", c.kv_heads).i("head_dim", c.D);
      more(a);
      return a;
    };
    std::vector<CaseInput> in = {{c.dtype, {c.B, c.Sq, c.heads * c.D}},
                                 {c.dtype, {c.B, c.Sk, c.kv_heads * c.D}},
                                 {c.dtype, {c.B, c.Sk, c.kv_heads * c.D}},
                                 c.first_key ? CaseInput{I, {c.B, c.Sq}, c.first_key->low, c.first_key->high} : none,
                                 none,
                                 c.slopes ? CaseInput{F, {c.heads}, 0.005, 0.05} : none,
                                 c.buckets ? CaseInput{F, {c.heads, c.buckets}} : none,
                                 {I, {c.B}, low, high}};
    op.test(name, in, attrs(), c.Sq);
    // The same of caches in 8 bit.
    in[1] = in[2] = {GALLEY_I8, {c.B, c.Sk, c.kv_heads * c.D}, -127, 127};
    in.insert(in.end(), 2, CaseInput{GALLEY_BF16, {c.B, c.Sk, coded_cache::blocks(c.kv_heads * c.D)}, 0.5, 1});
    static std::list<std::string> names;  // an op keeps their addresses
    op.test(names.emplace_back("int8, " + std::string(name)).c_str(), in, attrs(), c.Sq);
  };
  using Range = AttentionCase::Range;
  const auto plain = [](Attrs&) {};
  with("first", {2, 1, 20, 2, 2, 8}, 0, 0, plain);
  with("last", {2, 1, 150, 4, 2, 8}, 149, 149, plain);
  with("one of many", {4, 1, 200, 9, 3, 64}, 0, 199, plain);
  with("some", {3, 64, 200, 4, 2, 16}, 0, 136, plain);
  with("odd", {2, 7, 70, 3, 3, 33}, 0, 63, plain);
  with("begins", {1, 64, 130, 2, 1, 24}, 0, 0, plain);
  with("window", {2, 5, 160, 2, 1, 20}, 0, 155, [](Attrs& a) { a.i("window", 33); });
  with("documents", {2, 5, 160, 2, 1, 20, false, Range{0, 100}}, 100, 155, plain);
  with("slopes", {2, 3, 100, 4, 2, 8, false, {}, {}, true}, 0, 97, plain);
  with("biases", {2, 3, 100, 2, 2, 8, false, {}, {}, false, 32}, 0, 97, [](Attrs& a) { a.f("scale", 1); });
  with("cap and window", {1, 9, 90, 2, 1, 16}, 0, 81, [](Attrs& a) { a.f("softcap", 2.5).i("window", 40).f("scale", 0.3); });
  with("heads of 128", {1, 1, 300, 2, 1, 128}, 200, 299, plain);
  with("heads of 256", {1, 2, 70, 1, 1, 256}, 0, 60, plain);
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
    const bool b = dtype == GALLEY_BF16;
    with(b ? "one, bf16" : "one, f16", {2, 1, 130, 4, 2, 64, false, {}, {}, false, 0, 1, dtype}, 0, 129, plain);
    with(b ? "some, bf16" : "some, f16", {2, 64, 130, 2, 2, 24, false, {}, {}, true, 0, 1, dtype}, 0, 66, plain);
    with(b ? "bf16 to f32" : "f16 to f32", {1, 2, 20, 2, 1, 16, false, {}, {}, false, 0, 1, dtype}, 0, 18,
         [](Attrs& a) { a.s("dtype", "f32"); });
  }
}

}  // namespace galley::models
