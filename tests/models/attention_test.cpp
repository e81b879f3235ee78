// What attention's cases cannot show: buckets of distances, queries that see nothing, and that a row of one document comes out with the
// same bytes whether or not it has bounds that say so.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "galley/cpp/node.hpp"
#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

std::optional<Tensor> i32(std::vector<int64_t> shape, std::vector<double> values) {
  return Tensor{GALLEY_I32, std::move(shape), std::move(values)};
}

class Attention : public testing::Test {
 protected:
  std::optional<Tensor> draw(std::vector<int64_t> shape, uint32_t dtype = GALLEY_F32) {
    Tensor t{dtype, std::move(shape), {}};
    for (int64_t k = 0; k < t.count(); ++k) t.values.push_back(rounded(std::uniform_real_distribution(-1.0, 1.0)(random_), dtype));
    return t;
  }
  // q, k and v of their own; `more` begins with first_key.
  Problem problem(int64_t B, int64_t Sq, int64_t Sk, std::vector<std::optional<Tensor>> more, uint32_t dtype = GALLEY_F32) {
    Problem p;
    p.op = models().op("attention");
    p.name = "h.0.attn";
    p.inputs = {draw({B, Sq, heads * D}, dtype), draw({B, Sk, kv_heads * D}, dtype), draw({B, Sk, kv_heads * D}, dtype)};
    p.inputs.insert(p.inputs.end(), more.begin(), more.end());
    p.inputs.resize(8);
    p.flags = GALLEY_NODE_TRAINING;
    p.length = Sq;
    return finish(std::move(p));
  }
  // attention_grad with what `forward` left, and a random gradient.
  Problem gradient(const Problem& forward, const Execution& ran) {
    Problem p = forward;
    p.op = models().op("attention_grad");
    for (size_t i = 0; i < 2; ++i) {
      Tensor t = *forward.outputs[i];
      t.values = unpack(ran.outputs[i].data(), t.dtype, t.count());
      p.inputs.emplace_back(t);
    }
    p.inputs.push_back(draw(forward.outputs[0]->shape, forward.outputs[0]->dtype));
    p.infer();
    return p;
  }
  Problem finish(Problem p) {
    p.attrs = attrs_.data();
    p.n_attrs = attrs_.count();
    p.infer();
    return p;
  }
  static Execution run(const Problem& p, const Level& level) {
    set_threads(2);
    Execution r = execute(level.kernel(p.op->name), level.isa, p);
    EXPECT_EQ(r.status, GALLEY_OK) << r.text;
    EXPECT_TRUE(r.intact());
    return r;
  }
  static void expect_same_bytes(const Execution& a, const Execution& b) {
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      ASSERT_EQ(a.outputs[i].bytes(), b.outputs[i].bytes());
      EXPECT_EQ(std::memcmp(a.outputs[i].data(), b.outputs[i].data(), static_cast<size_t>(a.outputs[i].bytes())), 0) << "output " << i;
    }
  }

  static constexpr int64_t heads = 4, kv_heads = 2, D = 8;
  std::mt19937_64 random_{seed()};
  sdk::Attrs attrs_ = sdk::Attrs().i("heads", heads).i("kv_heads", kv_heads).i("head_dim", D).s("stream", "model.attention");
};

// Where the buckets begin is what transformers' T5Attention computes for 32 buckets and distances up to 128.
TEST_F(Attention, PutsDistancesIntoT5sBuckets) {
  const std::vector<int64_t> both_ways = {0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91};
  const std::vector<int64_t> behind = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                       16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113};
  constexpr int64_t S = 150;
  for (const bool causal : {true, false}) {
    const std::vector<int64_t>& begins = causal ? behind : both_ways;
    attrs_ = sdk::Attrs().i("heads", 1).i("head_dim", 1).i("causal", causal);
    std::vector<double> table(32);
    for (size_t k = 0; k < 32; ++k) table[k] = static_cast<double>(k);
    Problem p;
    p.op = models().op("attention");
    p.name = "layer.0";
    const auto zeros = Tensor{GALLEY_F32, {1, S, 1}, std::vector<double>(S, 0.0)};
    // Each query sees one key: its lse is that key's bucket.
    for (const int64_t distance :
         {-140, -113, -112, -91, -90, -64, -63, -46, -33, -20, -16, -9, -8, -1, 0, 1, 7, 8, 11, 12, 23, 45, 64, 90, 91, 149}) {
      std::vector<double> key(S);
      for (int64_t i = 0; i < S; ++i) key[static_cast<size_t>(i)] = static_cast<double>(i + distance);
      p.inputs = {zeros, zeros, zeros, i32({1, S}, key), i32({1, S}, key), {}, Tensor{GALLEY_F32, {1, 32}, table}};
      p = finish(std::move(p));
      const int64_t size = std::abs(distance);
      int64_t bucket = distance > 0 && causal ? 0 : std::upper_bound(begins.begin(), begins.end(), size) - begins.begin() - 1;
      if (distance > 0 && !causal) bucket += 16;
      for (const Level& level : models().levels) {
        const Execution r = run(p, level);
        const std::vector<double> lse = unpack(r.outputs[1].data(), GALLEY_F32, S);
        for (int64_t i = 0; i < S; ++i) {
          const bool sees = i + distance >= 0 && i + distance < S;
          EXPECT_EQ(lse[static_cast<size_t>(i)], sees ? static_cast<double>(bucket) : -INFINITY)
              << "distance " << distance << ", query " << i;
        }
      }
    }
  }
}

TEST_F(Attention, GivesZerosToAQueryThatSeesNothing) {
  constexpr int64_t B = 2, S = 70;
  for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16}) {
    // Query i of sequence 0 sees the keys 0 … i − 10; none of sequence 1 sees anything.
    std::vector<double> first, last;
    for (int64_t k = 0; k < B * S; ++k) {
      first.push_back(k < S ? 0 : 5);
      last.push_back(static_cast<double>(k < S ? k - 10 : 4));
    }
    const Problem p = problem(B, S, S, {i32({B, S}, first), i32({B, S}, last)}, dtype);
    for (const Level& level : models().levels) {
      const Execution forward = run(p, level);
      const std::vector<double> o = unpack(forward.outputs[0].data(), dtype, p.outputs[0]->count());
      const std::vector<double> lse = unpack(forward.outputs[1].data(), GALLEY_F32, p.outputs[1]->count());
      const Problem g = gradient(p, forward);
      const Execution backward = run(g, level);
      const std::vector<double> dq = unpack(backward.outputs[0].data(), dtype, g.outputs[0]->count());
      const std::vector<double> dk = unpack(backward.outputs[1].data(), dtype, g.outputs[1]->count());
      const std::vector<double> dv = unpack(backward.outputs[2].data(), dtype, g.outputs[2]->count());
      for (int64_t k = 0; k < B * S; ++k) {
        const bool sees = k < S && k >= 10, seen = k < S - 10;
        for (int64_t h = 0; h < heads; ++h) {
          EXPECT_EQ(std::isinf(lse[static_cast<size_t>((k / S * heads + h) * S + k % S)]), !sees) << k;
          EXPECT_EQ(o[static_cast<size_t>((k * heads + h) * D)] == 0, !sees) << k;
          if (!sees) {
            EXPECT_EQ(dq[static_cast<size_t>((k * heads + h) * D)], 0) << k;
          }
        }
        for (int64_t h = 0; h < kv_heads; ++h) {
          EXPECT_EQ(dk[static_cast<size_t>((k * kv_heads + h) * D)] == 0, !seen) << k;
          EXPECT_EQ(dv[static_cast<size_t>((k * kv_heads + h) * D)] == 0, !seen) << k;
        }
      }
      for (const auto* list : {&o, &dq, &dk, &dv})
        for (const double x : *list) EXPECT_TRUE(std::isfinite(x));
    }
  }
}

// Exactly: where rounding took its place, an optimizer that divides by a gradient's size would make whole steps of it.
TEST_F(Attention, GivesNoGradientToTheScoreOfAnOnlyKey) {
  constexpr int64_t B = 2, S = 70;
  const auto holds = [&](uint32_t dtype, int64_t window, int64_t Sk) {
    attrs_ = sdk::Attrs().i("heads", heads).i("kv_heads", kv_heads).i("head_dim", D).i("window", window).s("stream", "model.attention");
    const Problem p = problem(B, S, Sk, {}, dtype);
    for (const Level& level : models().levels) {
      const Problem g = gradient(p, run(p, level));
      const Execution backward = run(g, level);
      for (const size_t out : {size_t{0}, size_t{1}}) {
        const std::vector<double> d = unpack(backward.outputs[out].data(), dtype, g.outputs[out]->count());
        const int64_t columns = g.outputs[out]->shape[2];
        // Without a window, one query alone sees one key, which others see, too: the first of those that see any.
        for (int64_t k = 0; k < g.outputs[out]->count(); ++k) {
          const bool alone = window == 1 || (out == 0 && k / columns % S == S - Sk);
          ASSERT_TRUE(!alone || d[static_cast<size_t>(k)] == 0) << level.isa << ", number " << k;
        }
      }
    }
  };
  for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16})
    for (const int64_t window : {0, 1})
      for (const int64_t Sk : {S, int64_t{61}, int64_t{3}}) holds(dtype, window, Sk);
}

TEST_F(Attention, NeedsNoBoundsForARowOfOneDocument) {
  for (const int64_t S : {1, 64, 150}) {
    std::vector<double> last;
    for (int64_t k = 0; k < 2 * S; ++k) last.push_back(static_cast<double>(k % S));
    const Problem plain = problem(2, S, S, {});
    Problem first = plain, both = plain;
    first.inputs[3] = i32({2, S}, std::vector<double>(static_cast<size_t>(2 * S), 0.0));
    both.inputs[3] = first.inputs[3];
    both.inputs[4] = i32({2, S}, last);
    for (const Level& level : models().levels) {
      const Execution r = run(plain, level);
      expect_same_bytes(r, run(first, level));
      const Problem g = gradient(plain, r);
      Problem g_first = g;
      g_first.inputs[3] = first.inputs[3];
      expect_same_bytes(run(g, level), run(g_first, level));
      // last_key's blocks on the diagonal are multiplied whole: a key's sums begin at another query.
      const Execution b = run(finish(both), level);
      EXPECT_EQ(unpack(b.outputs[1].data(), GALLEY_F32, 2 * heads * S), unpack(r.outputs[1].data(), GALLEY_F32, 2 * heads * S));
    }
  }
}

TEST_F(Attention, IsTheSameForABatchOfEightAndEightOfOne) {
  constexpr int64_t S = 90, columns = heads * D, kv = kv_heads * D;
  const Problem whole = problem(8, S, S, {});
  for (const Level& level : models().levels) {
    const Execution all = run(whole, level);
    for (int64_t b = 0; b < 8; ++b) {
      Problem one = whole;
      for (size_t i = 0; i < 3; ++i) {
        Tensor& t = *one.inputs[i];
        const int64_t n = S * (i == 0 ? columns : kv);
        t.shape[0] = 1;
        t.values = {whole.inputs[i]->values.begin() + b * n, whole.inputs[i]->values.begin() + (b + 1) * n};
      }
      one = finish(std::move(one));
      const Execution r = run(one, level);
      EXPECT_EQ(
          std::memcmp(r.outputs[0].data(), all.outputs[0].data() + b * r.outputs[0].bytes(), static_cast<size_t>(r.outputs[0].bytes())), 0);
    }
  }
}

// The text with which the shape rule refuses a node.
TEST_F(Attention, RefusesWhatDoesNotFit) {
  const auto refusal = [&](std::vector<std::optional<Tensor>> more, int64_t Sk = 6) -> std::string {
    try {
      (void)problem(2, 6, Sk, std::move(more));
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  };
  const auto f32 = [](std::vector<int64_t> shape) { return std::optional(Tensor{GALLEY_F32, std::move(shape), {}}); };
  EXPECT_EQ(refusal({}, 9), "");
  EXPECT_EQ(refusal({i32({2, 9}, {})}, 9), "h.0.attn: attention: first_key is (2, 9); it has to be (2, 6)");
  EXPECT_EQ(refusal({{}, f32({2, 6})}), "h.0.attn: attention: last_key has to be I32");
  EXPECT_EQ(refusal({{}, {}, f32({3})}), "h.0.attn: attention: slopes is (3); it has to be (4)");
  EXPECT_EQ(refusal({{}, {}, {}, f32({2, 32})}), "h.0.attn: attention: bias is (2, 32); it has to be (4, buckets)");
  EXPECT_EQ(refusal({{}, {}, {}, f32({4, 1})}), "h.0.attn: attention: bias is (4, 1); it needs 2 buckets or more");
  EXPECT_EQ(refusal({{}, {}, {}, f32({4, 512})}), "h.0.attn: attention: max_distance = 128; with 512 buckets it has to be above 256");
  attrs_.f("softcap", -1);
  EXPECT_EQ(refusal({}), "h.0.attn: attention: softcap = -1.000000; it has to be 0 (none) or more");
}

}  // namespace
}  // namespace galley::test
