// What only a real GPU shows, in shapes that are too large for an emulated one: products and attention as libraries compute them, and the
// same bytes each time. Skipped where GALLEY_TEST_DEVICE names none; on an emulated one in small.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/models/attention_sums.hpp"
#include "tests/models/harness.hpp"
#include "tests/models/near.hpp"

namespace galley::test {
namespace {

constexpr int kRepeats = 12;

class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!TestDevice::get()) GTEST_SKIP() << "there is no GALLEY_TEST_DEVICE";
    large_ = TestDevice::get()->target().isa != std::string("emulated");
  }
  /// The extent on a real GPU, or a small one.
  int64_t extent(int64_t large, int64_t small) const { return large_ ? large : small; }

  Tensor draw(uint32_t dtype, const std::vector<int64_t>& shape) { return test::draw(dtype, shape, random_); }
  static Tensor ones(uint32_t dtype, const std::vector<int64_t>& shape) {
    Tensor t{dtype, shape, {}};
    t.values.assign(static_cast<size_t>(t.count()), 1.0);
    return t;
  }
  static Problem problem(const char* op, std::vector<std::optional<Tensor>> inputs, const sdk::Attrs& attrs) {
    Problem p;
    p.op = models().op(op);
    p.name = "large";
    p.inputs = std::move(inputs);
    p.inputs.resize(p.op->n_inputs);
    p.flags = GALLEY_NODE_TRAINING;
    p.attrs = attrs.data();
    p.n_attrs = attrs.count();
    p.infer();
    return p;
  }
  /// The outputs of each kernel that takes the node, beside the reference's, and again and again.
  void check(const Problem& p) {
    Problem expected = p;
    run_reference(expected);
    const bool attention = std::string_view(p.op->name).starts_with("attention");
    const auto sums = attention ? attention_sums(p) : std::vector<std::vector<double>>(p.outputs.size());
    int taken = 0;
    for (const Level& level : models().levels)
      for (const galley_kernel* kernel : level.kernels) {
        if (std::string_view(kernel->op) != p.op->name) continue;
        auto plan = sdk::fresh<galley_kernel_plan>();
        galley_error error = GALLEY_ERROR_INIT;
        if (query(kernel, level.isa, p, {}, &plan, &error) == GALLEY_UNSUPPORTED) continue;
        SCOPED_TRACE(std::string(kernel->name) + ", GALLEY_TEST_SEED=" + std::to_string(seed()));
        ++taken;
        const Execution first = execute(kernel, level.isa, p);
        ASSERT_EQ(first.status, GALLEY_OK) << first.text;
        EXPECT_TRUE(first.intact());
        for (size_t i = 0; i < p.outputs.size(); ++i)
          if (p.outputs[i])
            expect_near(unpack(first.outputs[i].data(), p.outputs[i]->dtype, p.outputs[i]->count()), expected.outputs[i]->values,
                        p.outputs[i]->dtype, "output " + std::to_string(i),
                        {p.inputs[0]->dtype, 1, sums[i], [&] { return movements(p).outputs[i]; }});
        for (int k = 1; k < (large_ ? kRepeats : 2); ++k) {
          const Execution again = execute(kernel, level.isa, p);
          for (size_t i = 0; i < first.outputs.size(); ++i)
            EXPECT_EQ(std::memcmp(first.outputs[i].data(), again.outputs[i].data(), static_cast<size_t>(first.outputs[i].bytes())), 0)
                << "output " << i << ", run " << k;
        }
      }
    EXPECT_GT(taken, 0) << "no kernel takes it";
  }
  /// Attention and its gradient: (B, S, heads · D), or packed.
  void check_attention(int64_t B, int64_t S, int64_t heads, int64_t kv_heads, int64_t D, bool packed, uint32_t dtype) {
    const sdk::Attrs attrs = sdk::Attrs().i("heads", heads).i("kv_heads", kv_heads).i("head_dim", D).s("stream", "large");
    std::vector<std::optional<Tensor>> inputs;
    if (packed) inputs = {draw(dtype, {B, S, (heads + 2 * kv_heads) * D})};
    else inputs = {draw(dtype, {B, S, heads * D}), draw(dtype, {B, S, kv_heads * D}), draw(dtype, {B, S, kv_heads * D})};
    Problem forward = problem("attention", inputs, attrs);
    check(forward);
    if (HasFatalFailure()) return;
    run_reference(forward);
    inputs.resize(8);
    for (const auto& output : forward.outputs) {
      inputs.push_back(output);
      for (double& x : inputs.back()->values) x = rounded(x, output->dtype);
    }
    inputs.push_back(draw(dtype, {B, S, heads * D}));
    check(problem("attention_grad", inputs, attrs));
  }

  bool large_ = false;
  std::mt19937_64 random_{seed()};
};

TEST_F(Gpu, MultipliesLargeMatrices) {
  const int64_t rows = extent(1000, 40), in = extent(768, 24), out = extent(520, 16);
  for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16}) {
    const sdk::Attrs plain, f32 = sdk::Attrs().s("dtype", "f32");
    check(problem("linear", {draw(dtype, {rows, in}), draw(dtype, {out, in}), draw(dtype, {out})}, plain));
    check(problem("linear_dx", {draw(dtype, {rows, out}), draw(dtype, {out, in})}, plain));
    check(problem("linear_dw", {draw(dtype, {rows, out}), draw(dtype, {rows, in})}, f32));
  }
}

// The sums of ones are exact, unless terms are left out.
TEST_F(Gpu, AddsUpEachTermOfLongSums) {
  for (const int64_t rows : {extent(11528, 72), extent(16384, 64), extent(20011, 77)})
    for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16})
      for (const int64_t columns : {32, 64, 128})
        check(problem("linear_dw", {ones(dtype, {rows, columns}), ones(dtype, {rows, 64})}, sdk::Attrs().s("dtype", "f32")));
}

TEST_F(Gpu, AttendsOverSeveralTiles) {
  check_attention(1, extent(384, 128), extent(12, 2), extent(12, 2), extent(64, 8), true, GALLEY_BF16);
  check_attention(1, extent(384, 128), extent(8, 2), extent(2, 1), extent(128, 8), false, GALLEY_BF16);
  check_attention(2, extent(640, 128), 2, 1, extent(96, 8), false, GALLEY_F16);
  // In several pieces where the gradients of scores need too much at once.
  check_attention(extent(8, 1), extent(384, 128), extent(32, 4), extent(8, 2), 8, false, GALLEY_BF16);
}

}  // namespace
}  // namespace galley::test
