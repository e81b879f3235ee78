// Muon beside torch.optim.Muon, whose products are in bfloat16; the iteration beside a polynomial of singular values; the same bits for any
// number of threads, any ISA and in groups.
#include <cmath>
#include <random>

#include "host/plugins/host_table.hpp"
#include "host/plugins/isa.hpp"
#include "tests/strategies/fixtures.hpp"
#include "tests/strategies/support.hpp"

namespace galley::test {
namespace {

using sdk::Attrs;
using Doubles = std::vector<double>;

constexpr double kA = 3.4445, kB = -4.775, kC = 2.0315;

Doubles product(const char* op, std::vector<int64_t> a_shape, const Doubles& a, std::vector<int64_t> b_shape, const Doubles& b,
                bool transposed = false) {
  NodeRun node(op, Attrs().i("transposed", transposed));
  node.in(GALLEY_F32, std::move(a_shape), a).in(GALLEY_F32, std::move(b_shape), b);
  if (op == std::string("linear")) node.absent();
  EXPECT_EQ(node.infer(), "");
  node.reference();
  return node.output(0);
}

/// Newton–Schulz as the strategy makes nodes of it.
Doubles iterated(Doubles x, int64_t rows, int64_t columns, int steps) {
  const bool tall = rows > columns;
  const std::vector<int64_t> shape = {rows, columns}, square = {std::min(rows, columns), std::min(rows, columns)};
  for (int k = 0; k < steps; ++k) {
    const Doubles gram = product(tall ? "linear_dw" : "linear", shape, x, shape, x);
    NodeRun polynomial("muon_polynomial", Attrs().f("a", kA).f("b", kB).f("c", kC));
    polynomial.in(GALLEY_F32, square, gram).in(GALLEY_F32, square, product("linear", square, gram, square, gram));
    EXPECT_EQ(polynomial.infer(), "");
    polynomial.reference();
    const Doubles u = polynomial.output(0);
    x = tall ? product("linear", shape, x, square, u) : product("linear", square, u, shape, x, true);
  }
  return x;
}

TEST(Muon, FollowsPyTorch) {
  constexpr int64_t rows = 48, columns = 32;
  const std::vector<int64_t> shape = {rows, columns};
  const Doubles gradients = optimizer_fixture("inputs", "gW");
  for (const bool kernel : {false, true}) {
    Doubles p = optimizer_fixture("inputs", "W"), momentum(p.size());
    const Doubles begin = p;
    for (int step = 1; step <= 20; ++step) {
      const auto first = gradients.begin() + static_cast<std::ptrdiff_t>(p.size()) * (step - 1);
      NodeRun direction("muon_momentum");
      direction.in(GALLEY_F32, shape, {first, first + static_cast<std::ptrdiff_t>(p.size())}).scalar(GALLEY_F32, 1).scalar(GALLEY_I32, 1);
      direction.in(GALLEY_F32, shape, momentum);
      ASSERT_EQ(direction.infer(), "");
      kernel ? direction.kernel() : direction.reference();
      momentum = direction.value(3);
      NodeRun node("muon_step", Attrs().f("weight_decay", 0.1).f("scale", std::sqrt(static_cast<double>(rows) / columns)));
      node.in(GALLEY_F32, shape, p).in(GALLEY_F32, shape, iterated(direction.output(0), rows, columns, 5)).scalar(GALLEY_F32, 2e-2);
      node.scalar(GALLEY_I64, step).absent().scalar(GALLEY_I32, 1);
      kernel ? node.kernel() : node.reference();
      p = node.value(0);
      if (step != 1 && step != 2 && step != 20) continue;
      const Doubles expected = optimizer_fixture("muon", "W." + std::to_string(step));
      double off = 0, moved = 0;
      for (size_t i = 0; i < p.size(); ++i) {
        off += (p[i] - expected[i]) * (p[i] - expected[i]);
        moved += (expected[i] - begin[i]) * (expected[i] - begin[i]);
      }
      EXPECT_LT(std::sqrt(off / moved), 2e-2) << "after step " << step << (kernel ? " by kernel" : " by definition");
    }
  }
}

/// X = U S Vᵀ of plane rotations, so that its singular values are known: each becomes s (a + b s² + c s⁴).
TEST(Muon, IteratesSingularValues) {
  for (const auto& [rows, columns] : std::vector<std::pair<int64_t, int64_t>>{{5, 9}, {9, 5}, {6, 6}}) {
    std::mt19937_64 random(static_cast<uint64_t>(rows));
    const int64_t n = std::min(rows, columns);
    Doubles before(static_cast<size_t>(rows * columns)), after = before;
    for (int64_t k = 0; k < n; ++k) {
      double s = 1.0 / static_cast<double>(k + 2), t = s;
      for (int step = 0; step < 5; ++step) t = t * (kA + kB * t * t + kC * t * t * t * t);
      before[static_cast<size_t>(k * columns + k)] = s;
      after[static_cast<size_t>(k * columns + k)] = t;
    }
    for (int turn = 0; turn < 40; ++turn) {
      const bool of_rows = turn % 2 == 0;
      const int64_t extent = of_rows ? rows : columns, other = of_rows ? columns : rows;
      const auto one = static_cast<int64_t>(random() % static_cast<uint64_t>(extent)), two = (one + 1) % extent;
      const double angle = static_cast<double>(random() % 1000);
      for (Doubles* m : {&before, &after})
        for (int64_t k = 0; k < other; ++k) {
          double& x = (*m)[static_cast<size_t>(of_rows ? one * columns + k : k * columns + one)];
          double& y = (*m)[static_cast<size_t>(of_rows ? two * columns + k : k * columns + two)];
          const double turned = std::cos(angle) * x - std::sin(angle) * y;
          y = std::sin(angle) * x + std::cos(angle) * y;
          x = turned;
        }
    }
    const Doubles made = iterated(before, rows, columns, 5);
    for (size_t i = 0; i < made.size(); ++i) EXPECT_NEAR(made[i], after[i], 1e-9) << rows << " × " << columns << ", element " << i;
  }
}

TEST(Muon, MakesDirectionsWithTheSameBitsOnAnyThreadsAndInGroups) {
  const auto nodes_of = [] {
    std::mt19937_64 random(3);
    std::vector<NodeRun> out;
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{301, 250}, {37, 67}, {7, 3001}}) {
      const auto drawn = [&] {
        Doubles values(static_cast<size_t>(shape[0] * shape[1]));
        for (double& x : values) x = static_cast<double>(std::uniform_real_distribution<float>(-1, 1)(random));
        return values;
      };
      NodeRun& node = out.emplace_back("muon_momentum", Attrs().s("dtype", shape[0] == 37 ? "bf16" : "f32"));
      node.in(GALLEY_F32, shape, drawn()).scalar(GALLEY_F32, 0.5).scalar(GALLEY_I32, 1).in(GALLEY_F32, shape, drawn());
      EXPECT_EQ(node.infer(), "");
    }
    return out;
  };
  const auto held = [](std::vector<NodeRun>& nodes) {
    std::vector<Doubles> out;
    for (NodeRun& node : nodes) out.insert(out.end(), {node.value(3), node.output(0)});
    return out;
  };
  const auto computed = [&](int threads, const std::string& isa) {
    std::vector<NodeRun> nodes = nodes_of();
    set_compute_threads(threads);
    for (NodeRun& node : nodes) node.kernel(isa);
    return held(nodes);
  };
  const auto one = computed(1, "");
  EXPECT_EQ(one, computed(2, ""));
  EXPECT_EQ(one, computed(3, ""));
  if (cpu_isa() == "x86-64-v4") {
    EXPECT_EQ(one, computed(2, "x86-64-v3"));
  }
  std::vector<NodeRun> group = nodes_of();
  std::vector<NodeRun*> together;
  for (NodeRun& node : group) together.push_back(&node);
  NodeRun::together("muon_momentum", together);
  EXPECT_EQ(one, held(group));
}

TEST(Muon, AsksForTheRateOfTheRest) {
  const std::string said = refusal("muon", Table{{"lr", Value(0.02)}});
  EXPECT_NE(said.find("'rest_lr' is missing"), std::string::npos) << said;
  EXPECT_EQ(refusal("muon", Table{{"lr", Value(0.02)}, {"rest", Value(std::string("none"))}}), "");
  EXPECT_EQ(refusal("muon", Table{{"lr", Value(0.02)}, {"adjust", Value(std::string("match_rms_adamw"))}}), "");
}

}  // namespace
}  // namespace galley::test
