// Every kernel against its op's reference, on fresh numbers: writing and adding, in place, in chunks of rows, with 1, 2 and 3 threads, at
// each level of the processor.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "galley/cpp/node.hpp"
#include "tests/models/attention_sums.hpp"
#include "tests/models/harness.hpp"
#include "tests/models/near.hpp"
#include "tests/models/together.hpp"
#include "tests/setting.hpp"

namespace galley::test {
namespace {

std::vector<uint32_t> all_writing(const Problem& p) { return std::vector<uint32_t>(p.outputs.size(), GALLEY_WRITE); }

bool same_bytes(const Memory& a, const Memory& b) {
  return a.bytes() == b.bytes() && !std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes()));
}

std::vector<double> values(const Memory& m, const Tensor& t) { return unpack(m.data(), t.dtype, t.count()); }

Execution run_case(const galley_kernel* kernel, const std::string& isa, const Problem& p, const How& how = {}) {
  Execution r = execute(kernel, isa, p, how);
  EXPECT_TRUE(r.intact()) << "wrote outside of an operand or of the workspace";
  return r;
}

/// On a GPU, cuBLASLt may take another algorithm for another number of rows, or for addresses that are less aligned: the bytes then differ.
bool chooses(const galley_kernel* kernel, const std::string& isa) {
  const std::string_view name = kernel->name;
  return isa.starts_with("sm_") && (name.ends_with(".cublaslt") || name.ends_with(".several"));
}

class Kernel : public testing::TestWithParam<Case> {
 protected:
  // For each kernel of the op at each level that takes the case. Fails when a level has none.
  template <class Body>
  void each(const Body& body) {
    for (const Level& level : models().levels) {
      std::set<const galley_kernel*> taken;
      std::string reasons;
      take(level, body, &taken, &reasons);
      EXPECT_TRUE(!taken.empty() || !level.needs(*GetParam().op)) << "no kernel at " << level.isa << " takes this case;" << reasons;
      // Where there are tiles of BF16, kernels for processors that have only vectors of it.
      if (level.isa == "x86-64-v4" && __builtin_cpu_supports("avx512bf16") && !HasFatalFailure()) {
        set_bf16_per_f32(2);
        take(level, body, &taken, &reasons);
        set_bf16_per_f32({});
      }
      if (HasFatalFailure()) return;
    }
  }
  template <class Body>
  void take(const Level& level, const Body& body, std::set<const galley_kernel*>* taken, std::string* reasons) {
    for (const galley_kernel* kernel : level.kernels) {
      if (GetParam().op->name != std::string(kernel->op) || taken->contains(kernel)) continue;
      SCOPED_TRACE(std::string(kernel->name) + " at " + level.isa + ", GALLEY_TEST_SEED=" + std::to_string(seed()));
      auto plan = sdk::fresh<galley_kernel_plan>();
      galley_error error = GALLEY_ERROR_INIT;
      const galley_status status = query(kernel, level.isa, problem, {}, &plan, &error);
      if (status == GALLEY_UNSUPPORTED) {
        *reasons += std::string(" ") + kernel->name + ": " + error.text + ";";
        continue;
      }
      ASSERT_EQ(status, GALLEY_OK) << error.text;
      taken->insert(kernel);
      body(kernel, level.isa);
      if (HasFatalFailure()) return;
    }
  }

  void SetUp() override {
    set_threads(2);
    problem = Problem::draw(GetParam().op, *GetParam().example, random);
    for (const auto& t : problem.outputs) {
      auto& numbers = initial.emplace_back();
      for (int64_t k = 0; t && k < t->count(); ++k) numbers.push_back(rounded(std::uniform_real_distribution(-1.0, 1.0)(random), t->dtype));
    }
  }

  /// Bounds of output i, or of input i that is updated, with what the problem itself makes of a rounding.
  Rounded moving(size_t i, bool output, Rounded before = {}) {
    before.moves = [this, i, output] {
      if (!moved) moved = movements(problem);
      return (output ? moved->outputs : moved->inputs)[i];
    };
    return before;
  }

  const galley_operand_rule* rule_of(bool output, size_t i) const { return test::rule_of(problem.op, output, i); }
  bool inout(size_t i) const { return rule_of(false, i)->flags & GALLEY_OPERAND_INOUT; }

  /// What some tests leave out: without GALLEY_TEST_ALL, another case in 16 bit, which goes the same ways; and what has its turn with
  /// another commit.
  static bool left_out() {
    const std::string name = GetParam().name();
    const bool in_16_bit = name.ends_with("__bf16") || name.ends_with("__f16");
    return (in_16_bit && !std::getenv("GALLEY_TEST_ALL")) || !has_turn(GetParam());
  }

  std::mt19937_64 random{seed()};
  Problem problem;
  std::optional<Movements> moved;
  std::vector<std::vector<double>> initial;
};

TEST_P(Kernel, EqualsReference) {
  Problem expected = problem;
  run_reference(expected);
  // Writing all; adding to all that can be added to; and adding to the first of them only.
  std::vector<std::vector<uint32_t>> ways = {all_writing(problem)};
  std::vector<uint32_t> adding = ways[0], first = ways[0];
  int n_adding = 0;
  for (size_t i = 0; i < problem.outputs.size(); ++i) {
    if (!problem.outputs[i] || !(problem.op->outputs[i]->flags & GALLEY_OPERAND_ACCUMULATES) || !floating(problem.outputs[i]->dtype))
      continue;
    adding[i] = GALLEY_ACCUMULATE;
    if (!n_adding++) first[i] = GALLEY_ACCUMULATE;
  }
  if (n_adding > 0) ways.push_back(adding);
  if (n_adding > 1) ways.push_back(first);
  each([&](const galley_kernel* kernel, const std::string& isa) {
    std::vector<std::vector<double>> sums(problem.outputs.size());
    if (rounds_probabilities(kernel->name)) sums = attention_sums(problem);
    const uint32_t compute = problem.inputs.empty() || !problem.inputs[0] ? GALLEY_F32 : problem.inputs[0]->dtype;
    for (const auto& access : ways) {
      const Execution r = run_case(kernel, isa, problem, {access, initial, {}});
      ASSERT_EQ(r.status, GALLEY_OK) << r.text;
      for (size_t i = 0; i < problem.outputs.size(); ++i) {
        if (!problem.outputs[i]) continue;
        std::vector<double> wanted = expected.outputs[i]->values;
        Rounded before = {compute, 1, sums[i]};
        if (access[i] == GALLEY_ACCUMULATE) {
          // cuBLASLt may round a product with its bias before it adds that.
          if (chooses(kernel, isa)) before = {problem.outputs[i]->dtype, 1, {}};
          for (size_t e = 0; e < wanted.size(); ++e) {
            wanted[e] += initial[i][e];
            if (chooses(kernel, isa)) before.sizes.push_back(1 + std::fabs(wanted[e]));
          }
        }
        expect_near(values(r.outputs[i], *problem.outputs[i]), wanted, problem.outputs[i]->dtype,
                    access[i] == GALLEY_ACCUMULATE ? "added" : "written", moving(i, true, before));
      }
      for (size_t i = 0; i < problem.inputs.size(); ++i) {
        if (!problem.inputs[i]) continue;
        if (inout(i))
          expect_near(values(r.inputs[i], *problem.inputs[i]), expected.inputs[i]->values, problem.inputs[i]->dtype, "updated",
                      moving(i, false));
        else EXPECT_TRUE(same_bytes(r.inputs[i], pack(*problem.inputs[i], problem.inputs[i]->dtype))) << "input " << i << " was changed";
      }
    }
  });
}

TEST_P(Kernel, MakesTheSameBytesWithAnyNumberOfThreads) {
  each([&](const galley_kernel* kernel, const std::string& isa) {
    if (isa == "emulated") return;  // blocks of a GPU do not know how many run beside them
    set_threads(1);
    const Execution one = run_case(kernel, isa, problem);
    for (const int n : {2, 3}) {
      set_threads(n);
      const Execution many = run_case(kernel, isa, problem);
      for (size_t i = 0; i < one.outputs.size(); ++i)
        EXPECT_TRUE(same_bytes(one.outputs[i], many.outputs[i])) << "output " << i << " with " << n << " threads";
      for (size_t i = 0; i < one.inputs.size(); ++i)
        EXPECT_TRUE(same_bytes(one.inputs[i], many.inputs[i])) << "input " << i << " with " << n << " threads";
    }
  });
}

// An emulated GPU runs the threads of a block in one order or another; on a GPU there is none to count on. One of the other orders is drawn
// for each kernel, unless GALLEY_TEST_ALL asks for all, or a barrier is missing that one of them must notice.
TEST_P(Kernel, MakesTheSameBytesInAnyOrderOfThreads) {
  if (left_out()) return;
  each([&](const galley_kernel* kernel, const std::string& isa) {
    if (isa != "emulated") return;
    const Execution forward = run_case(kernel, isa, problem);
    std::vector<std::string> orders = {"reverse", std::to_string(random())};
    if (!std::getenv("GALLEY_TEST_ALL") && !std::getenv("GALLEY_CUDA_MUTANT")) orders = {orders[random() % orders.size()]};
    for (const std::string& order : orders) {
      const Setting threads("GALLEY_CUDA_ORDER", order);
      const Execution other = run_case(kernel, isa, problem);
      ASSERT_EQ(other.status, GALLEY_OK) << other.text;
      for (size_t i = 0; i < forward.outputs.size(); ++i)
        EXPECT_TRUE(same_bytes(forward.outputs[i], other.outputs[i])) << "output " << i << ", order " << order;
      for (size_t i = 0; i < forward.inputs.size(); ++i)
        EXPECT_TRUE(same_bytes(forward.inputs[i], other.inputs[i])) << "input " << i << ", order " << order;
    }
  });
}

// A range of a tensor may begin anywhere, and vectors of 16 bytes may not. Codes and numbers of 16 bits also lie at odd multiples of their size.
TEST_P(Kernel, MakesTheSameBytesAtAnyAddress) {
  if (left_out()) return;
  int64_t least = 4;
  for (const auto* operands : {&problem.inputs, &problem.outputs})
    for (const auto& t : *operands)
      if (t) least = std::min<int64_t>(least, galley_dtype_bytes(t->dtype));
  each([&](const galley_kernel* kernel, const std::string& isa) {
    if (chooses(kernel, isa)) return;
    const Execution alone = execute(kernel, isa, problem);
    std::vector<int64_t> offs = isa == "emulated" ? std::vector<int64_t>{8} : std::vector<int64_t>{8, 4};
    if (least < 4) offs.push_back(least);
    for (const int64_t off : offs) {
      const Placed placed(problem, {}, off);
      const View view(problem, placed.inputs, placed.outputs, {}, false);
      const Launch made = launch(kernel, isa, {view.node()}, {view.node()});
      // A library's kernel may refuse such an address by name.
      if (made.status == GALLEY_UNSUPPORTED && made.text.find("takes operands at multiples of 16 bytes") != std::string::npos) continue;
      ASSERT_EQ(made.status, GALLEY_OK) << made.text;
      EXPECT_TRUE(placed.same(alone)) << off << " bytes off";
    }
  });
}

TEST_P(Kernel, WorksInPlace) {
  std::vector<std::vector<int>> ways;
  std::vector<int> all(problem.outputs.size(), -1);
  for (size_t i = 0; i < problem.outputs.size(); ++i) {
    const int from = problem.op->outputs[i]->alias;
    if (from < 0 || !problem.outputs[i] || !problem.inputs[static_cast<size_t>(from)]) continue;
    const Tensor &in = *problem.inputs[static_cast<size_t>(from)], &out = *problem.outputs[i];
    if (in.count() * galley_dtype_bytes(in.dtype) != out.count() * galley_dtype_bytes(out.dtype)) continue;
    all[i] = from;
    ways.emplace_back(problem.outputs.size(), -1);
    ways.back()[i] = from;
  }
  if (ways.empty()) return;
  if (ways.size() > 1) ways.push_back(all);
  each([&](const galley_kernel* kernel, const std::string& isa) {
    const Execution apart = run_case(kernel, isa, problem);
    for (const auto& way : ways) {
      const Execution together = run_case(kernel, isa, problem, {{}, {}, way});
      ASSERT_EQ(together.status, GALLEY_OK) << together.text;
      for (size_t i = 0; i < problem.outputs.size(); ++i) {
        if (!problem.outputs[i]) continue;
        const Memory& where = way[i] < 0 ? together.outputs[i] : together.inputs[static_cast<size_t>(way[i])];
        EXPECT_TRUE(same_bytes(where, apart.outputs[i])) << "output " << i << " in the place of input " << way[i];
      }
    }
  });
}

// The head and the loss run in chunks of rows: rows must come out with the same bytes, sums over rows nearly so.
TEST_P(Kernel, WorksInChunksOfRows) {
  int64_t rows = 0;
  bool chunkable = false;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const galley_operand_rule* rule = rule_of(false, i);
    if (!problem.inputs[i] || rule->role != GALLEY_ROLE_ROWS) continue;
    chunkable = true;
    rows = rows_of(rule, *problem.inputs[i]);
  }
  for (size_t i = 0; i < problem.outputs.size(); ++i) {
    const galley_operand_rule* rule = rule_of(true, i);
    if (problem.outputs[i])
      chunkable =
          chunkable && (rule->role == GALLEY_ROLE_ROWS || (rule->role == GALLEY_ROLE_REDUCED && rule->flags & GALLEY_OPERAND_ACCUMULATES));
  }
  if (!chunkable || rows < 2) return;
  const std::vector<int64_t> cuts = {0, 1, 1 + (rows - 1) / 2, rows};
  each([&](const galley_kernel* kernel, const std::string& isa) {
    const Execution whole = run_case(kernel, isa, problem);
    const auto expect_rows = [&](const Memory& part, const Memory& all, int64_t first, const Tensor& of, const std::string& what) {
      if (chooses(kernel, isa)) {
        const auto at = static_cast<size_t>(all.bytes() / rows * first);
        expect_alike(unpack(part.data(), of.dtype, of.count()), unpack(all.data() + at, of.dtype, of.count()), of.dtype, what);
        return;
      }
      EXPECT_EQ(std::memcmp(part.data(), all.data() + all.bytes() / rows * first, static_cast<size_t>(part.bytes())), 0)
          << what << ", rows from " << first;
    };
    std::vector<std::vector<double>> sums(problem.outputs.size()), largest(problem.outputs.size());
    for (size_t cut = 0; cut + 1 < cuts.size(); ++cut) {
      const int64_t first = cuts[cut], n = cuts[cut + 1] - first;
      if (n == 0) continue;
      Problem part = problem;
      part.first_row = problem.first_row + first;
      for (size_t i = 0; i < part.inputs.size(); ++i) {
        if (!part.inputs[i] || rule_of(false, i)->role != GALLEY_ROLE_ROWS) continue;
        Tensor& t = *part.inputs[i];
        const int64_t width = t.count() / rows;
        t.shape = shape_of_rows(rule_of(false, i), t, n);
        t.values = {t.values.begin() + first * width, t.values.begin() + (first + n) * width};
      }
      auto access = all_writing(problem);
      for (size_t i = 0; i < part.outputs.size(); ++i) {
        if (!part.outputs[i]) continue;
        if (rule_of(true, i)->role == GALLEY_ROLE_ROWS) part.outputs[i]->shape = shape_of_rows(rule_of(true, i), *part.outputs[i], n);
        else if (first > 0) access[i] = GALLEY_ACCUMULATE;
      }
      const Execution r = run_case(kernel, isa, part, {access, sums, {}});
      ASSERT_EQ(r.status, GALLEY_OK) << r.text;
      for (size_t i = 0; i < part.inputs.size(); ++i)
        if (part.inputs[i] && inout(i) && rule_of(false, i)->role == GALLEY_ROLE_ROWS)
          expect_rows(r.inputs[i], whole.inputs[i], first, *part.inputs[i], "input " + std::to_string(i));
      for (size_t i = 0; i < part.outputs.size(); ++i) {
        if (!part.outputs[i]) continue;
        if (rule_of(true, i)->role == GALLEY_ROLE_ROWS) {
          expect_rows(r.outputs[i], whole.outputs[i], first, *part.outputs[i], "output " + std::to_string(i));
          continue;
        }
        sums[i] = values(r.outputs[i], *part.outputs[i]);
        largest[i].resize(sums[i].size());
        for (size_t e = 0; e < sums[i].size(); ++e) largest[i][e] = std::max(largest[i][e], std::fabs(sums[i][e]));
      }
    }
    for (size_t i = 0; i < problem.outputs.size(); ++i)
      if (problem.outputs[i] && rule_of(true, i)->role == GALLEY_ROLE_REDUCED)
        expect_near(sums[i], values(whole.outputs[i], *problem.outputs[i]), problem.outputs[i]->dtype, "summed over chunks",
                    {problem.outputs[i]->dtype, 3, largest[i]});
  });
}

TEST_P(Kernel, AgreesBetweenLevels) {
  std::vector<std::vector<std::vector<double>>> first;
  each([&](const galley_kernel* kernel, const std::string& isa) {
    if (isa == "emulated" || rounds_probabilities(kernel->name)) return;  // levels are the processor's
    const Execution r = run_case(kernel, isa, problem);
    std::vector<std::vector<double>> got;
    std::vector<uint32_t> dtypes;
    std::vector<Rounded> before;
    const auto take = [&](const Memory& m, const std::optional<Tensor>& t, size_t i, bool output) {
      if (t) got.push_back(values(m, *t)), dtypes.push_back(t->dtype), before.push_back(moving(i, output));
    };
    for (size_t i = 0; i < problem.outputs.size(); ++i) take(r.outputs[i], problem.outputs[i], i, true);
    for (size_t i = 0; i < problem.inputs.size(); ++i)
      if (inout(i)) take(r.inputs[i], problem.inputs[i], i, false);
    if (first.empty()) first.push_back(got);
    for (size_t i = 0; i < got.size(); ++i) expect_alike(got[i], first[0][i], dtypes[i], "against the first level", before[i]);
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, Kernel, testing::ValuesIn(cases()), [](const auto& c) { return c.param.name(); });

}  // namespace
}  // namespace galley::test
