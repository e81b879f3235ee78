// What a kernel takes it reads rightly: each case with one of its inputs in another dtype, and with outputs in a dtype that a node may ask
// for, is refused by the op's shape rule, so that the host never offers it, or by the kernel's `query`, or it is computed as the reference
// says. A kernel of groups refuses it beside the case as it was, too, or makes the bytes that both have alone.
//
// Each input of each case in every dtype takes a minute; without GALLEY_TEST_ALL, one of them is drawn for each case.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>

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
        const std::string_view name = kernel->name;
        std::vector<std::vector<double>> sums(problem.outputs.size());
        if (name.starts_with("attention") && (name.ends_with(".cudnn") || name.ends_with(".cuda_mma"))) sums = attention_sums(problem);
        const uint32_t compute = problem.inputs.empty() || !problem.inputs[0] ? GALLEY_F32 : problem.inputs[0]->dtype;
        for (size_t i = 0; i < problem.outputs.size(); ++i) {
          const auto& t = problem.outputs[i];
          if (!t) continue;
          std::vector<double> wanted = expected->outputs[i]->values;
          for (double& v : wanted)  // beyond the dtype's largest number
            if (floating(t->dtype) && std::isinf(rounded(v, t->dtype))) v = rounded(v, t->dtype);
          expect_near(unpack(r.outputs[i].data(), t->dtype, t->count()), wanted, t->dtype, "output " + std::to_string(i),
                      {compute, 1, sums[i]});
        }
        for (size_t i = 0; i < problem.inputs.size(); ++i)
          if (const auto& t = problem.inputs[i]; t && inout(i))
            expect_near(unpack(r.inputs[i].data(), t->dtype, t->count()), expected->inputs[i]->values, t->dtype,
                        "input " + std::to_string(i));
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

TEST_P(Dtypes, AreTakenOrRefused) {
  set_threads(2);
  struct Change {
    std::optional<size_t> input;  ///< else all outputs, where the op takes the attribute
    uint32_t dtype;
  };
  std::vector<Change> changes;
  for (size_t i = 0; i < drawn.inputs.size(); ++i)
    if (drawn.inputs[i])
      for (const uint32_t dtype : others(drawn.inputs[i]->dtype)) changes.push_back({i, dtype});
  const auto own_at =
      std::find_if(drawn.attrs, drawn.attrs + drawn.n_attrs, [](const galley_attr* a) { return !std::strcmp(a->name, "dtype"); });
  const galley_attr* const own = own_at == drawn.attrs + drawn.n_attrs ? nullptr : *own_at;
  if (!own || own->type == GALLEY_ATTR_STRING)  // an op that unpacks a format has a number there
    for (const uint32_t dtype : {GALLEY_F32, GALLEY_BF16, GALLEY_F16}) changes.push_back({{}, dtype});
  if (!std::getenv("GALLEY_TEST_ALL") && !changes.empty()) changes = {changes[random() % changes.size()]};
  for (const Change& change : changes) {
    problem = drawn;
    const char* const name = change.dtype == GALLEY_F32 ? "f32" : change.dtype == GALLEY_BF16 ? "bf16" : "f16";
    const galley_attr dtype = {
        sizeof(galley_attr), 1, "dtype", name, GALLEY_ATTR_STRING, static_cast<uint32_t>(std::string_view(name).size()), 0};
    std::vector<const galley_attr*> attrs = {&dtype};
    if (change.input) {
      Tensor& t = *problem.inputs[*change.input];
      t.dtype = change.dtype;
      if (floating(t.dtype))
        for (double& value : t.values) value = rounded(value, t.dtype);
    } else {
      std::copy_if(drawn.attrs, drawn.attrs + drawn.n_attrs, std::back_inserter(attrs), [&](const galley_attr* a) { return a != own; });
      problem.attrs = attrs.data();
      problem.n_attrs = static_cast<uint32_t>(attrs.size());
    }
    try {
      problem.infer();
    } catch (const std::runtime_error&) {
      continue;  // nobody is offered this
    }
    check((change.input ? "input " + std::to_string(*change.input) : std::string("outputs")) + " in dtype " + std::to_string(change.dtype));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Dtypes, testing::ValuesIn(cases()), [](const auto& c) { return c.param.name(); });

}  // namespace
}  // namespace galley::test
