// Adafactor: twenty steps beside those of transformers and PyTorch; the same bytes for any number of threads and any ISA, alone, in groups
// and with a copy.
#include <cmath>
#include <random>

#include "host/plugins/host_table.hpp"
#include "host/plugins/isa.hpp"
#include "tests/strategies/fixtures.hpp"
#include "tests/strategies/support.hpp"

namespace galley::test {
namespace {

using sdk::Attrs;

struct AdafactorCase {
  const char* file;
  double lr;
  int64_t relative, scaled, warmup;
  double weight_decay = 0, beta1 = 0;
};

/// A parameter and its states.
struct AdafactorState {
  std::vector<int64_t> shape;
  std::vector<double> p, squares, columns, mean;
};

AdafactorState adafactor_state(std::vector<int64_t> shape, std::vector<double> p, bool mean) {
  const bool matrix = shape.size() == 2;
  AdafactorState s;
  s.squares.resize(matrix ? static_cast<size_t>(shape[0]) : p.size());
  s.columns.resize(matrix ? static_cast<size_t>(shape[1]) : 0);
  s.mean.resize(mean ? p.size() : 0);
  s.shape = std::move(shape);
  s.p = std::move(p);
  return s;
}

NodeRun& moment(NodeRun& node, const AdafactorState& s) {
  node.in(GALLEY_F32, {static_cast<int64_t>(s.squares.size())}, s.squares);
  return s.columns.empty() ? node.absent() : node.in(GALLEY_F32, {s.shape[1]}, s.columns);
}

void adafactor(AdafactorState& s, std::vector<double> g, const AdafactorCase& c, int step, bool kernel) {
  NodeRun moments(
      "adafactor_moments",
      Attrs().i("relative_step", c.relative).i("scale_parameter", c.scaled).i("warmup_init", c.warmup).f("weight_decay", c.weight_decay));
  moments.in(GALLEY_F32, s.shape, s.p).in(GALLEY_F32, s.shape, g).scalar(GALLEY_F32, c.lr).scalar(GALLEY_I64, step);
  moment(moments.scalar(GALLEY_F32, 1).scalar(GALLEY_I32, 1), s).scalar(GALLEY_F32, c.lr);
  ASSERT_EQ(moments.infer(), "");
  kernel ? moments.kernel() : moments.reference();
  s.squares = moments.value(6);
  if (!s.columns.empty()) s.columns = moments.value(7);
  NodeRun node("adafactor_step", Attrs().f("beta1", c.beta1));
  node.in(GALLEY_F32, s.shape, s.p).in(GALLEY_F32, s.shape, std::move(g)).in(GALLEY_F32, {2}, moments.output(0));
  moment(node.scalar(GALLEY_F32, 1).scalar(GALLEY_I32, 1), s);
  s.mean.empty() ? node.absent() : node.in(GALLEY_F32, s.shape, s.mean);
  ASSERT_EQ(node.infer(), "");
  kernel ? node.kernel() : node.reference();
  s.p = node.value(0);
  if (!s.mean.empty()) s.mean = node.value(7);
}

TEST(Adafactor, FollowsTransformersAndPyTorch) {
  for (const AdafactorCase& c : {AdafactorCase{"adafactor-transformers-fixed", 1e-3, 0, 0, 0},
                                 {"adafactor-transformers-relative", 1e-2, 1, 1, 0},
                                 {"adafactor-transformers-warmup-beta1", 1e-2, 1, 1, 1, 0.01, 0.9},
                                 {"adafactor-torch", 1e-2, 1, 1, 0}}) {
    for (const bool kernel : {false, true}) {
      for (const std::string name : {"W", "b"}) {
        const std::vector<double> gradients = optimizer_fixture("inputs", "g" + name);
        const std::vector<int64_t> shape = name == "W" ? std::vector<int64_t>{48, 32} : std::vector<int64_t>{48};
        AdafactorState s = adafactor_state(shape, optimizer_fixture("inputs", name), c.beta1 > 0);
        const auto n = static_cast<std::ptrdiff_t>(s.p.size());
        for (int step = 1; step <= 20; ++step) {
          adafactor(s, {gradients.begin() + n * (step - 1), gradients.begin() + n * step}, c, step, kernel);
          if (step != 1 && step != 2 && step != 20) continue;
          const std::vector<double> expected = optimizer_fixture(c.file, name + "." + std::to_string(step));
          for (size_t i = 0; i < s.p.size(); ++i)
            ASSERT_NEAR(s.p[i], expected[i], (kernel ? 2e-6 : 1.2e-7) * std::max(1.0, std::abs(expected[i])))
                << c.file << ' ' << name << " after step " << step << (kernel ? " by kernel" : " by definition") << ", element " << i;
        }
      }
    }
  }
}

/// A matrix of several blocks of rows and tiles of columns, and a vector of several blocks.
std::vector<NodeRun> large_nodes(const std::string& op) {
  std::mt19937_64 random(3);
  const auto drawn = [&](int64_t n, double low, double high) {
    std::vector<double> out(static_cast<size_t>(n));
    for (double& x : out) x = static_cast<double>(static_cast<float>(std::uniform_real_distribution<double>(low, high)(random)));
    return out;
  };
  std::vector<NodeRun> out;
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{301, 2500}, {300000}}) {
    const bool matrix = shape.size() == 2;
    const int64_t n = matrix ? shape[0] * shape[1] : shape[0], rows = matrix ? shape[0] : n;
    NodeRun& node = out.emplace_back(op);
    node.in(GALLEY_F32, shape, drawn(n, -1, 1)).in(GALLEY_F32, shape, drawn(n, -1, 1));
    if (op == "adafactor_moments") node.scalar(GALLEY_F32, 1e-2).scalar(GALLEY_I64, 7);
    else node.in(GALLEY_F32, {2}, {0.01, 0.99});
    node.scalar(GALLEY_F32, 1).scalar(GALLEY_I32, 1).in(GALLEY_F32, {rows}, drawn(rows, 0.1, 1));
    matrix ? node.in(GALLEY_F32, {shape[1]}, drawn(shape[1], 0.1, 1)) : node.absent();
    if (op == "adafactor_moments") node.scalar(GALLEY_F32, 1e-2);
    else node.in(GALLEY_F32, shape, drawn(n, -1, 1));
    EXPECT_EQ(node.infer(), "");
  }
  return out;
}

std::vector<std::vector<double>> held_by(std::vector<NodeRun>& nodes, const std::string& op) {
  std::vector<std::vector<double>> out;
  for (NodeRun& node : nodes) {
    const bool moments = op == "adafactor_moments";
    out.push_back(moments ? node.output(0) : node.value(0));
    out.push_back(node.value(moments ? 6 : 7));
    if (moments) out.push_back(node.value(7));
  }
  return out;
}

TEST(Adafactor, HasTheSameBitsOnAnyThreadsAndVectorsAndInGroups) {
  for (const std::string op : {"adafactor_moments", "adafactor_step"}) {
    const auto computed = [&](int threads, const std::string& isa) {
      std::vector<NodeRun> nodes = large_nodes(op);
      set_compute_threads(threads);
      for (NodeRun& node : nodes) node.kernel(isa);
      return held_by(nodes, op);
    };
    const auto one = computed(1, "");
    EXPECT_EQ(one, computed(2, "")) << op;
    EXPECT_EQ(one, computed(3, "")) << op;
    if (cpu_isa() == "x86-64-v4") {
      EXPECT_EQ(one, computed(2, "x86-64-v3")) << op;
    }
    std::vector<NodeRun> group = large_nodes(op);
    std::vector<NodeRun*> nodes;
    for (NodeRun& node : group) nodes.push_back(&node);
    NodeRun::together(op, nodes);
    EXPECT_EQ(one, held_by(group, op)) << op;
    std::vector<NodeRun> defined = large_nodes(op);
    for (NodeRun& node : defined) node.reference();
    const auto exact = held_by(defined, op);
    for (size_t i = 0; i < one.size(); ++i)
      for (size_t k = 0; k < one[i].size(); ++k)
        ASSERT_NEAR(one[i][k], exact[i][k], 2e-6 * std::max(1.0, std::abs(exact[i][k]))) << op << ", tensor " << i << ", element " << k;
  }
}

TEST(Adafactor, MakesTheCopyThatFollowsIt) {
  for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
    const char* const text = dtype == GALLEY_BF16 ? "bf16" : "f16";
    std::vector<NodeRun> alone = large_nodes("adafactor_step"), steps = large_nodes("adafactor_step"), copies, copies_alone;
    std::vector<NodeRun*> chains;
    for (size_t i = 0; i < steps.size(); ++i) {
      const std::vector<int64_t> shape = {static_cast<int64_t>(steps[i].value(0).size())};
      alone[i].kernel();
      copies_alone.emplace_back("copy", Attrs().s("dtype", text)).in(GALLEY_F32, shape, alone[i].value(0));
      EXPECT_EQ(copies_alone.back().infer(), "");
      copies_alone.back().kernel();
      copies.emplace_back("copy", Attrs().s("dtype", text)).before(GALLEY_F32, shape);
      EXPECT_EQ(copies.back().infer(), "");
    }
    for (size_t i = 0; i < steps.size(); ++i) chains.insert(chains.end(), {&steps[i], &copies[i]});
    NodeRun::together("adafactor_step>copy", chains);
    EXPECT_EQ(held_by(steps, "adafactor_step"), held_by(alone, "adafactor_step"));
    for (size_t i = 0; i < copies.size(); ++i) EXPECT_EQ(copies[i].output(0), copies_alone[i].output(0)) << text;
  }
}

TEST(Adafactor, RefusesWhatDoesNotBelongTogether) {
  const std::string said = refusal("adafactor", Table{{"relative_step", Value(false)}, {"warmup_init", Value(true)}});
  EXPECT_NE(said.find("'warmup_init' is a warm-up of the relative step"), std::string::npos) << said;
}

}  // namespace
}  // namespace galley::test
