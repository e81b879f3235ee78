// SGD and AdamW: twenty steps beside PyTorch's, kernels beside their double-precision definitions, the same bytes for any number of
// threads and any ISA.
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "galley/cpp/half.hpp"
#include "host/plugins/host_table.hpp"
#include "host/plugins/isa.hpp"
#include "tests/strategies/fixtures.hpp"
#include "tests/strategies/support.hpp"

namespace galley::test {
namespace {

using sdk::Attrs;

/// How a step's node is made of parameter, gradient, states and the number of the step.
using MakeStep =
    std::function<NodeRun(std::vector<double> p, std::vector<double> g, const std::vector<std::vector<double>>& states, int step)>;

/// Follows 20 steps with states at these inputs (zeros at first) and compares after steps 1, 2 and 20, or after 20 with what was computed
/// in F32.
void follow(const std::string& file, const MakeStep& make, const std::vector<size_t>& states, bool f32 = false) {
  for (const bool kernel : {false, true}) {
    for (const std::string name : {"W", "b"}) {
      std::vector<double> p = optimizer_fixture("inputs", name);
      const std::vector<double> gradients = optimizer_fixture("inputs", "g" + name);
      std::vector<std::vector<double>> s(states.size(), std::vector<double>(p.size()));
      for (int step = 1; step <= 20; ++step) {
        const auto begin = gradients.begin() + static_cast<std::ptrdiff_t>(p.size()) * (step - 1);
        NodeRun node = make(p, {begin, begin + static_cast<std::ptrdiff_t>(p.size())}, s, step);
        kernel ? node.kernel() : node.reference();
        p = node.value(0);
        for (size_t i = 0; i < states.size(); ++i) s[i] = node.value(states[i]);
        if (step != 20 && (f32 || (step != 1 && step != 2))) continue;
        const std::vector<double> expected = optimizer_fixture(file, name + "." + std::to_string(step));
        double worst = 0;
        for (size_t i = 0; i < p.size(); ++i) worst = std::max(worst, std::abs(p[i] - expected[i]) / std::max(1.0, std::abs(expected[i])));
        // The definition is off by the rounding of the file, the kernel by that of twenty steps.
        EXPECT_LT(worst, f32      ? 4e-6
                         : kernel ? 2e-6
                                  : 1.2e-7)
            << file << ' ' << name << " after step " << step << (kernel ? " by kernel" : " by definition");
      }
    }
  }
}

/// A step with one state, or none.
NodeRun one_state(const char* op, std::vector<double> p, std::vector<double> g, const std::vector<std::vector<double>>& states, double lr,
                  int step, Attrs attrs) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(p.size())};
  NodeRun node(op, std::move(attrs));
  node.in(GALLEY_F32, shape, std::move(p))
      .in(GALLEY_F32, shape, std::move(g))
      .scalar(GALLEY_F32, lr)
      .scalar(GALLEY_I64, step)
      .scalar(GALLEY_F32, 1)
      .scalar(GALLEY_I32, 1);
  if (states.empty()) node.absent();
  else node.in(GALLEY_F32, shape, states[0]);
  return node;
}

NodeRun sgd(std::vector<double> p, std::vector<double> g, const std::vector<std::vector<double>>& states, double lr, int step,
            Attrs attrs) {
  return one_state("sgd_step", std::move(p), std::move(g), states, lr, step, std::move(attrs));
}

NodeRun adamw(std::vector<double> p, std::vector<double> g, const std::vector<std::vector<double>>& states, double lr, int step,
              Attrs attrs) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(p.size())};
  NodeRun node("adamw_step", std::move(attrs));
  node.in(GALLEY_F32, shape, std::move(p))
      .in(GALLEY_F32, shape, std::move(g))
      .scalar(GALLEY_F32, lr)
      .scalar(GALLEY_I64, step)
      .scalar(GALLEY_F32, 1)
      .scalar(GALLEY_I32, 1)
      .in(GALLEY_F32, shape, states[0])
      .in(GALLEY_F32, shape, states[1]);
  if (states.size() < 3) node.absent();
  else node.in(GALLEY_F32, shape, states[2]);
  return node;
}

TEST(Sgd, FollowsPyTorch) {
  follow("sgd", [](auto p, auto g, const auto& s, int step) { return sgd(p, g, s, 1e-2, step, {}); }, {});
  follow(
      "sgd-momentum",
      [](auto p, auto g, const auto& s, int step) { return sgd(p, g, s, 1e-2, step, Attrs().f("momentum", 0.9).f("weight_decay", 0.01)); },
      {6});
  follow("sgd-nesterov",
         [](auto p, auto g, const auto& s, int step) { return sgd(p, g, s, 1e-2, step, Attrs().f("momentum", 0.9).i("nesterov", 1)); },
         {6});
}

TEST(Adam, FollowsPyTorch) {
  follow("adam-l2",
         [](auto p, auto g, const auto& s, int step) {
           return adamw(p, g, s, 1e-3, step,
                        Attrs().f("beta1", 0.9).f("beta2", 0.999).f("eps", 1e-8).f("weight_decay", 0.01).i("coupled", 1));
         },
         {6, 7});
}

TEST(Lion, FollowsBitsandbytes) {
  follow(
      "lion",
      [](auto p, auto g, const auto& s, int step) {
        return one_state("lion_step", p, g, s, 1e-4, step, Attrs().f("beta1", 0.9).f("beta2", 0.99).f("weight_decay", 0.1));
      },
      {6}, true);
}

TEST(AdamW, FollowsPyTorch) {
  follow("adamw",
         [](auto p, auto g, const auto& s, int step) {
           return adamw(p, g, s, 1e-3, step, Attrs().f("beta1", 0.9).f("beta2", 0.95).f("eps", 1e-8).f("weight_decay", 0.1));
         },
         {6, 7});
  follow("adamw-amsgrad",
         [](auto p, auto g, const auto& s, int step) {
           return adamw(p, g, s, 1e-3, step, Attrs().f("beta1", 0.9).f("beta2", 0.999).f("eps", 1e-8).f("weight_decay", 0.01));
         },
         {6, 7, 8});
}

// ---- Kernels beside definitions ---------------------------------------------------------------------------------------------------

/// The nearest value that the dtype has.
double rounded(double value, uint32_t dtype) {
  float x = static_cast<float>(value);
  const auto through = [&](auto half) {
    sdk::from_float(x, half);
    x = sdk::to_float(half);
  };
  if (dtype == GALLEY_BF16) through(sdk::Bf16());
  if (dtype == GALLEY_F16) through(sdk::F16());
  return static_cast<double>(x);
}

/// The op's own test cases with inputs drawn from their ranges; `stretch` blows tensors up to several blocks.
std::vector<NodeRun> draw_cases(const char* op, std::mt19937_64& random, int64_t stretch) {
  std::vector<NodeRun> out;
  const galley_op* table = plugins().op(op).table;
  for (uint32_t c = 0; c < table->n_cases; ++c) {
    const galley_op_case& example = *table->cases[c];
    Attrs attrs;
    for (uint32_t a = 0; a < example.node->n_attrs; ++a) attrs.copy(*example.node->attrs[a]);
    NodeRun& node = out.emplace_back(op, std::move(attrs));
    for (uint32_t i = 0; i < example.node->n_inputs; ++i) {
      const galley_operand* operand = example.node->inputs[i];
      if (!operand) {
        node.absent();
        continue;
      }
      const int64_t n = galley_operand_count(operand), count = n == 1 ? 1 : n * stretch;
      const bool whole = operand->dtype == GALLEY_I64 || operand->dtype == GALLEY_I32;
      std::uniform_real_distribution<double> between(example.low[i], example.high[i]);
      std::vector<double> values(static_cast<size_t>(count));
      for (double& x : values) x = whole ? std::round(between(random)) : rounded(between(random), operand->dtype);
      node.in(operand->dtype, {count}, std::move(values));
    }
    EXPECT_EQ(node.infer(), "");
  }
  return out;
}

class Kernels : public testing::TestWithParam<const char*> {
 protected:
  static std::vector<size_t> updated(const char* op) {
    std::vector<size_t> out;
    const galley_op* table = plugins().op(op).table;
    for (uint32_t i = 0; i < table->n_inputs; ++i)
      if (table->inputs[i]->flags & GALLEY_OPERAND_INOUT) out.push_back(i);
    return out;
  }
};

TEST_P(Kernels, AgreeWithTheirDefinitions) {
  std::mt19937_64 random(7);
  std::vector<NodeRun> defined = draw_cases(GetParam(), random, 1);
  ASSERT_FALSE(defined.empty());
  for (size_t c = 0; c < defined.size(); ++c) {
    std::mt19937_64 again(7);
    NodeRun computed = std::move(draw_cases(GetParam(), again, 1)[c]);
    defined[c].reference();
    computed.kernel();
    for (const size_t i : updated(GetParam())) {
      for (size_t k = 0; k < computed.value(i).size(); ++k)
        ASSERT_NEAR(computed.value(i)[k], defined[c].value(i)[k], 2e-6 * std::max(1.0, std::abs(defined[c].value(i)[k])))
            << "case " << c << ", input " << i << ", element " << k;
    }
  }
}

TEST_P(Kernels, AreTheSameForAnyThreadsAndVectors) {
  for (size_t c = 0; c < plugins().op(GetParam()).table->n_cases; ++c) {
    const auto computed = [&](int threads, const std::string& isa) {
      std::mt19937_64 random(11);
      NodeRun node = std::move(draw_cases(GetParam(), random, 3)[c]);
      set_compute_threads(threads);
      node.kernel(isa);
      std::vector<std::vector<double>> out;
      for (const size_t i : updated(GetParam())) out.push_back(node.value(i));
      return out;
    };
    const auto one = computed(1, "");
    EXPECT_EQ(one, computed(2, "")) << "case " << c;
    EXPECT_EQ(one, computed(3, "")) << "case " << c;
    if (cpu_isa() == "x86-64-v4") {
      EXPECT_EQ(one, computed(2, "x86-64-v3")) << "case " << c;
    }
  }
}

/// What these inputs of the nodes hold.
std::vector<std::vector<double>> held(std::vector<NodeRun>& nodes, const std::vector<size_t>& inputs) {
  std::vector<std::vector<double>> out;
  for (NodeRun& node : nodes)
    for (const size_t i : inputs) out.push_back(node.value(i));
  return out;
}

TEST_P(Kernels, AreTheSameInGroups) {
  const std::string op = GetParam();
  if (op == "clip_factor") GTEST_SKIP() << "there is one of them in a step";
  std::mt19937_64 random(5), again(5);
  std::vector<NodeRun> alone = draw_cases(GetParam(), random, 3), group = draw_cases(GetParam(), again, 3);
  std::vector<NodeRun*> nodes;
  for (NodeRun& node : alone) node.kernel();
  for (NodeRun& node : group) nodes.push_back(&node);
  NodeRun::together(op, nodes);
  EXPECT_EQ(held(group, updated(GetParam())), held(alone, updated(GetParam())));
}

TEST(AdamW, AndItsCopyAreTheSameInChains) {
  const std::vector<size_t> updated = {0, 6, 7};
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
    const char* const text = dtype == GALLEY_BF16 ? "bf16" : "f16";
    std::mt19937_64 random(5), again(5);
    std::vector<NodeRun> alone = draw_cases("adamw_step", random, 3), steps = draw_cases("adamw_step", again, 3);
    std::vector<NodeRun> copies, copies_alone;
    std::vector<NodeRun*> chains;
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto n = static_cast<int64_t>(steps[i].value(0).size());
      alone[i].kernel();
      copies_alone.emplace_back("copy", Attrs().s("dtype", text)).in(GALLEY_F32, {n}, alone[i].value(0));
      EXPECT_EQ(copies_alone.back().infer(), "");
      copies_alone.back().kernel();
      copies.emplace_back("copy", Attrs().s("dtype", text)).before(GALLEY_F32, {n});
      EXPECT_EQ(copies.back().infer(), "");
    }
    for (size_t i = 0; i < steps.size(); ++i) chains.insert(chains.end(), {&steps[i], &copies[i]});
    NodeRun::together("adamw_step>copy", chains);
    EXPECT_EQ(held(steps, updated), held(alone, updated));
    for (size_t i = 0; i < copies.size(); ++i) EXPECT_EQ(copies[i].output(0), copies_alone[i].output(0)) << text << ", case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Kernels, testing::Values("sgd_step", "adamw_step", "lion_step", "muon_step", "clip_factor", "clip_values"),
                         [](const auto& op) { return std::string(op.param); });

TEST(Ops, RefuseOperandsThatDoNotBelongTogether) {
  NodeRun node("adamw_step");
  node.in(GALLEY_F32, {2}, {0, 0}).in(GALLEY_F32, {3}, {0, 0, 0});
  node.scalar(GALLEY_F32, 1e-3).scalar(GALLEY_I64, 1).scalar(GALLEY_F32, 1).scalar(GALLEY_I32, 1);
  node.in(GALLEY_F32, {2}, {0, 0}).in(GALLEY_F32, {2}, {0, 0});
  EXPECT_EQ(node.infer(), "node: the parameter is (2), but input 1 is (3)");
}

TEST(Clip, ScalesDownAndNeverUp) {
  for (const auto& [norm, expected] : std::vector<std::pair<double, double>>{{0, 0.5}, {0.5, 0.5}, {4, 0.5 / 4.000001}, {HUGE_VAL, 0}}) {
    for (const bool kernel : {false, true}) {
      NodeRun node("clip_factor", Attrs().f("max_norm", 1.0));
      node.scalar(GALLEY_F32, norm).scalar(GALLEY_F32, 0.5);
      kernel ? node.kernel() : node.reference();
      EXPECT_NEAR(node.value(1)[0], expected, 1e-7) << norm;
    }
  }
}

TEST(Clip, ClampsElementsToTheLimitOverTheFactor) {
  const std::vector<double> x = {0, 0.25, -0.25, 3, -3, HUGE_VAL, -HUGE_VAL, NAN}, clamped = {0, 0.25, -0.25, 0.5, -0.5, 0.5, -0.5, NAN};
  for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
    for (const bool kernel : {false, true}) {
      NodeRun node("clip_values", Attrs().f("max_value", 0.125));
      node.in(dtype, {8}, x).scalar(GALLEY_F32, 0.25);
      ASSERT_EQ(node.infer(), "");
      kernel ? node.kernel() : node.reference();
      for (size_t i = 0; i + 1 < x.size(); ++i) EXPECT_EQ(node.value(0)[i], clamped[i]) << i << dtype << kernel;
      EXPECT_TRUE(std::isnan(node.value(0)[7])) << dtype << kernel;
    }
}

TEST(Clip, HasSomethingToClipBy) {
  NodeRun node("clip_values", Attrs().f("max_value", 1.0));
  node.in(GALLEY_I32, {2}, {0, 0}).scalar(GALLEY_F32, 1);
  EXPECT_EQ(node.infer(), "node: the gradient has to be F32, BF16 or F16");
}

TEST(Bf16Storage, RoundsToEven) {
  const std::vector<double> x = {1.0, 1.00390625, 1.01171875, -3.14159, 1e-40, 65504};
  const std::vector<double> expected = {1.0, 1.0, 1.015625, -3.140625, 9.183549615799121e-41, 65536};
  for (const bool kernel : {false, true}) {
    NodeRun node("brain_pack");
    node.in(GALLEY_F32, {6}, x);
    ASSERT_EQ(node.infer(), "");
    kernel ? node.kernel() : node.reference();
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(node.output(0)[i], expected[i], 1e-6 * std::abs(expected[i])) << i << kernel;
    NodeRun back("brain_unpack");
    back.in(GALLEY_BF16, {6}, node.output(0));
    ASSERT_EQ(back.infer(), "");
    kernel ? back.kernel() : back.reference();
    EXPECT_EQ(back.output(0), node.output(0));
  }
}

}  // namespace
}  // namespace galley::test
