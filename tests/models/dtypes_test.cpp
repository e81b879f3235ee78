// What a kernel takes it reads rightly: each case with one of its inputs in another dtype, and with outputs in a dtype that a node may ask
// for, is refused by the op's shape rule, so that the host never offers it, or by the kernel's `query`, or it is computed as the reference
// says. A kernel of groups refuses it beside the case as it was, too, or makes the bytes that both have alone.
// Likewise each operand of each chain.
//
// Each input of each case in every dtype takes a minute; without GALLEY_TEST_ALL, one of them is drawn for each case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>

#include "galley/cpp/node.hpp"
#include "tests/models/attention_sums.hpp"
#include "tests/models/near.hpp"
#include "tests/models/together.hpp"

namespace galley::test {
namespace {

class Dtypes : public testing::TestWithParam<Case> {
 protected:
  bool inout(size_t i) const { return problem.op->inputs[std::min<size_t>(i, problem.op->n_inputs - 1)]->flags & GALLEY_OPERAND_INOUT; }

  /// The problem as it is now, by each kernel that takes it.
  void check(const std::string& what) {
    std::optional<Problem> expected;
    for (const Level& level : models().levels)
      for (const galley_kernel* kernel : level.kernels) {
        if (problem.op->name != std::string(kernel->op)) continue;
        SCOPED_TRACE(std::string(kernel->name) + " at " + level.isa + ", " + what + ", GALLEY_TEST_SEED=" + std::to_string(seed()));
        auto plan = sdk::fresh<galley_kernel_plan>();
        galley_error error = GALLEY_ERROR_INIT;
        const galley_status status = query(kernel, level.isa, problem, {}, &plan, &error);
        if (kernel->flags & GALLEY_KERNEL_GROUPS) check_group(level, kernel, status == GALLEY_OK);
        if (status == GALLEY_UNSUPPORTED) continue;
        ASSERT_EQ(status, GALLEY_OK) << error.text;
        if (!expected) {
          expected = problem;
          run_reference(*expected);
        }
        const Execution r = execute(kernel, level.isa, problem);
        ASSERT_EQ(r.status, GALLEY_OK) << r.text;
        ASSERT_TRUE(r.intact()) << "wrote outside of an operand or of the workspace";
        std::vector<std::vector<double>> sums(problem.outputs.size());
        if (rounds_probabilities(kernel->name)) sums = attention_sums(problem);
        const uint32_t compute = problem.inputs.empty() || !problem.inputs[0] ? GALLEY_F32 : problem.inputs[0]->dtype;
        for (size_t i = 0; i < problem.outputs.size(); ++i) {
          const auto& t = problem.outputs[i];
          if (!t) continue;
          std::vector<double> wanted = expected->outputs[i]->values;
          for (double& v : wanted)  // beyond the dtype's largest number
            if (floating(t->dtype) && std::isinf(rounded(v, t->dtype))) v = rounded(v, t->dtype);
          expect_near(unpack(r.outputs[i].data(), t->dtype, t->count()), wanted, t->dtype, "output " + std::to_string(i),
                      {compute, 1, sums[i], [&] { return movements(problem).outputs[i]; }});
        }
        for (size_t i = 0; i < problem.inputs.size(); ++i)
          if (const auto& t = problem.inputs[i]; t && inout(i))
            expect_near(unpack(r.inputs[i].data(), t->dtype, t->count()), expected->inputs[i]->values, t->dtype,
                        "input " + std::to_string(i), {.moves = [&] { return movements(problem).inputs[i]; }});
      }
  }

  /// The case as it was and as it is now, in one launch.
  void check_group(const Level& level, const galley_kernel* kernel, bool taken) {
    const Placed was(drawn), is(problem);
    const View first(drawn, was.inputs, was.outputs, {}, false), second(problem, is.inputs, is.outputs, {}, false);
    const Launch made = launch(kernel, level.isa, {first.node(), second.node()}, {first.node(), second.node()});
    if (made.status == GALLEY_UNSUPPORTED) return;
    ASSERT_EQ(made.status, GALLEY_OK) << made.text;
    ASSERT_TRUE(taken) << "takes in a group what it refuses alone";
    EXPECT_TRUE(was.same(alone(level, drawn)) && is.same(alone(level, problem))) << "makes something else in a group";
  }

  std::mt19937_64 random{seed()};
  Problem drawn = Problem::draw(GetParam().op, *GetParam().example, random), problem;
};

/// Those that an operand might have in the place of this one.
std::vector<uint32_t> others(uint32_t dtype) {
  std::vector<uint32_t> out = floating(dtype) ? std::vector<uint32_t>{GALLEY_F64, GALLEY_F32, GALLEY_BF16, GALLEY_F16}
                                              : std::vector<uint32_t>{GALLEY_I64, GALLEY_I32};
  if (!floating(dtype) && std::find(out.begin(), out.end(), dtype) == out.end()) return {};
  std::erase(out, dtype);
  return out;
}

/// The attributes of a problem, with another one called "dtype".
class InDtype {
 public:
  InDtype(const Problem& problem, uint32_t dtype)
      : name_(dtype == GALLEY_F32    ? "f32"
              : dtype == GALLEY_BF16 ? "bf16"
                                     : "f16"),
        dtype_{sizeof(galley_attr), 1, "dtype", name_.data(), GALLEY_ATTR_STRING, static_cast<uint32_t>(name_.size()), 0} {
    attrs_ = {&dtype_};
    std::copy_if(problem.attrs, problem.attrs + problem.n_attrs, std::back_inserter(attrs_),
                 [](const galley_attr* a) { return std::strcmp(a->name, "dtype") != 0; });
  }
  InDtype(const InDtype&) = delete;
  void give(Problem& problem) const {
    problem.attrs = attrs_.data();
    problem.n_attrs = static_cast<uint32_t>(attrs_.size());
  }

 private:
  std::string name_;
  galley_attr dtype_;
  std::vector<const galley_attr*> attrs_;
};

/// Whether a node of the problem's op may ask for a dtype of its outputs: an op that unpacks a format has a number there.
bool may_ask(const Problem& problem) {
  return std::none_of(problem.attrs, problem.attrs + problem.n_attrs,
                      [](const galley_attr* a) { return !std::strcmp(a->name, "dtype") && a->type != GALLEY_ATTR_STRING; });
}

struct Change {
  std::optional<size_t> input;  ///< else all outputs, where the op takes the attribute
  uint32_t dtype;
  std::string text() const {
    return (input ? "input " + std::to_string(*input) : std::string("outputs")) + " in dtype " + std::to_string(dtype);
  }
};

std::vector<Change> changes_of(const Problem& problem, std::optional<size_t> without = {}) {
  std::vector<Change> changes;
  for (size_t i = 0; i < problem.inputs.size(); ++i)
    if (problem.inputs[i] && i != without)
      for (const uint32_t dtype : others(problem.inputs[i]->dtype)) changes.push_back({i, dtype});
  if (may_ask(problem))
    for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16}) changes.push_back({{}, dtype});
  return changes;
}

void set_dtype(Tensor& t, uint32_t dtype) {
  t.dtype = dtype;
  if (floating(dtype))
    for (double& value : t.values) value = rounded(value, dtype);
}

/// False: the op's shape rule refuses it, so nobody is offered this.
bool inferred(Problem& problem) {
  try {
    problem.infer();
    return true;
  } catch (const std::runtime_error&) {
    return false;
  }
}

TEST_P(Dtypes, AreTakenOrRefused) {
  set_threads(2);
  std::vector<Change> changes = changes_of(drawn);
  if (!std::getenv("GALLEY_TEST_ALL") && !changes.empty()) changes = {changes[random() % changes.size()]};
  for (const Change& change : changes) {
    problem = drawn;
    const InDtype asked(drawn, change.dtype);
    if (change.input) set_dtype(*problem.inputs[*change.input], change.dtype);
    else asked.give(problem);
    if (inferred(problem)) check(change.text());
  }
}

// ---- Chains ---------------------------------------------------------------------------------------------------------------------------

/// Two links. What the first makes, or updates if it has no outputs, is input `place` of the second.
struct TwoLinks {
  Problem first, second;
  size_t place = 0;

  Tensor& made() { return first.outputs.empty() ? *first.inputs[0] : *first.outputs[0]; }
  bool inferred() {
    if (!test::inferred(first)) return false;
    second.inputs[place] = made();
    return test::inferred(second);
  }
};

class ChainDtypes : public testing::Test {
 protected:
  void SetUp() override {
    set_threads(2);
    by_tanh.s("approximate", "tanh");
    to_bf16.s("dtype", "bf16");
  }
  /// Of these ops: small ones, at least one for each dtype that they compute in.
  std::vector<TwoLinks> links_of(const std::string& one, const std::string& two) {
    std::vector<TwoLinks> out;
    const galley_op *first = models().op(one), *second = models().op(two);
    const auto add = [&](Problem a, Problem b, size_t place) {
      TwoLinks& links = out.emplace_back(TwoLinks{std::move(a), std::move(b), place});
      links.first.op = first, links.second.op = second;
      links.first.name = "first", links.second.name = "second";
      if (!links.inferred()) out.pop_back();
    };
    if (one == "add") {
      for (uint32_t k = 0; k < second->n_cases; ++k) {
        const Problem normed = Problem::draw(second, *second->cases[k], random);
        if (normed.inputs[0]->count() > 5000) continue;
        Problem sum;
        sum.inputs = {normed.inputs[0], normed.inputs[0]};
        add(sum, normed, 0);
      }
    } else if (first->n_outputs == 0) {
      for (uint32_t k = 0; k < first->n_cases; ++k) {
        Problem copy;
        copy.inputs.resize(1);
        copy.attrs = to_bf16.data(), copy.n_attrs = to_bf16.count();
        add(Problem::draw(first, *first->cases[k], random), copy, 0);
      }
    } else {
      for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16})
        for (size_t place = 0; place < std::min<size_t>(second->n_inputs, one == "linear" ? 2 : 1); ++place) {
          Problem product, activation;
          const int64_t K = two == "add" ? 2 : 16;  // a sum takes thin products
          product.inputs = {draw(dtype, {6, K}, random), draw(dtype, {16, K}, random)};
          if (one == "linear") product.inputs.emplace_back(draw(GALLEY_F32, {16}, random));
          activation.inputs.assign(second->n_inputs, draw(dtype, {6, 16}, random));
          if (two.starts_with("gelu")) activation.attrs = by_tanh.data(), activation.n_attrs = by_tanh.count();
          add(product, activation, place);
        }
    }
    return out;
  }

  /// The links as they are now, by each kernel that takes the chain: how many there were.
  int check(const std::string& chain, TwoLinks& links) {
    TwoLinks expected = links;
    run_reference(expected.first);
    expected.second.inputs[links.place] = expected.made();
    set_dtype(*expected.second.inputs[links.place], links.made().dtype);
    run_reference(expected.second);
    const Tensor &between = *expected.second.inputs[links.place], &y = *expected.second.outputs[0];
    // A kernel may round what lies between, or not.
    double largest = 1;
    for (const auto* t : {&between, &y})
      for (const double value : t->values) largest = std::max(largest, std::fabs(value));
    const Rounded before = {between.dtype, 2, std::vector<double>(y.values.size(), largest)};
    int taken = 0;
    for (const Level& level : models().levels)
      for (const galley_kernel* kernel : level.kernels)
        for (const auto kind : {Linked::Between::Kept, Linked::Between::NoMemory}) {
          if (kernel->op != chain || (kind == Linked::Between::NoMemory && links.first.outputs.empty())) continue;
          SCOPED_TRACE(std::string(kernel->name) + " at " + level.isa);
          const Linked linked(links.first, links.second, links.place, kind);
          const Launch ran = linked.run(kernel, level.isa);
          if (ran.status == GALLEY_UNSUPPORTED) continue;
          EXPECT_EQ(ran.status, GALLEY_OK) << ran.text;
          EXPECT_TRUE(ran.workspace.intact() && ran.constants.intact() && linked.intact()) << "wrote outside of an operand";
          ++taken;
          expect_near(unpack(linked.two.outputs[0], y.dtype, y.count()), y.values, y.dtype, "the last output", before);
          if (kind == Linked::Between::NoMemory) continue;
          const std::vector<void*>& at = links.first.outputs.empty() ? linked.one.inputs : linked.one.outputs;
          expect_near(unpack(at[0], between.dtype, between.count()), expected.made().values, between.dtype, "what lies between");
        }
    return taken;
  }

  std::mt19937_64 random{seed()};
  sdk::Attrs by_tanh, to_bf16;
};

TEST_F(ChainDtypes, AreTakenOrRefused) {
  std::map<std::string, int> taken;  // by chain
  for (const Level& level : models().levels)
    for (const galley_kernel* kernel : level.kernels)
      if (std::strchr(kernel->op, '>')) taken.emplace(kernel->op, 0);
  ASSERT_FALSE(taken.empty());
  for (auto& [chain, count] : taken) {
    const size_t cut = chain.find('>');
    ASSERT_EQ(chain.find('>', cut + 1), chain.npos) << chain << ": this test knows chains of two links";
    for (const TwoLinks& drawn : links_of(chain.substr(0, cut), chain.substr(cut + 1))) {
      const auto offer = [&](const std::string& what, const std::function<void(TwoLinks&)>& change) {
        SCOPED_TRACE(chain + " of dtype " + std::to_string(drawn.first.inputs[0]->dtype) + ", " + what +
                     ", GALLEY_TEST_SEED=" + std::to_string(seed()));
        TwoLinks links = drawn;
        change(links);
        if (links.inferred()) count += check(chain, links);
      };
      offer("as they are", [](TwoLinks&) {});
      for (const bool second : {false, true}) {
        const Problem& of = second ? drawn.second : drawn.first;
        for (const Change& change : changes_of(of, second ? std::optional(drawn.place) : std::nullopt)) {
          const InDtype asked(of, change.dtype);
          offer((second ? "second, " : "first, ") + change.text(), [&](TwoLinks& links) {
            Problem& problem = second ? links.second : links.first;
            if (change.input) set_dtype(*problem.inputs[*change.input], change.dtype);
            else asked.give(problem);
          });
        }
      }
    }
    EXPECT_GT(count, 0) << chain << ": no kernel has taken any";
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Dtypes, testing::ValuesIn(cases()), [](const auto& c) { return c.param.name(); });

}  // namespace
}  // namespace galley::test
