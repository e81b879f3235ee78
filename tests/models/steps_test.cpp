// Kernels of strategies: optimizers that take all parameters in one launch, and the same bits on every device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "galley/cpp/groups.hpp"
#include "tests/models/together.hpp"

namespace galley::test {
namespace {

/// Of a parameter: less than a vector, less than a warp's, a block's, several blocks' and a rest.
const std::vector<int64_t> sizes = {1, 255, 4096, 100003};

/// A problem for each of an op's cases and sizes: its tensors get so many elements.
std::vector<Problem> parameters(const std::string& name, std::mt19937_64& random) {
  const galley_op* op = models().op(name);
  std::vector<Problem> out;
  for (uint32_t k = 0; k < op->n_cases; ++k)
    for (const int64_t size : sizes) {
      const galley_op_case& example = *op->cases[k];
      Problem& p = out.emplace_back(Problem::draw(op, example, random));
      p.name += " " + std::to_string(size);
      for (size_t i = 0; i < p.inputs.size(); ++i) {
        if (!p.inputs[i] || op->inputs[i]->role != GALLEY_ROLE_ROWS) continue;
        Tensor& t = *p.inputs[i];
        t.shape = {size};
        t.values.clear();
        for (int64_t e = 0; e < size; ++e)
          t.values.push_back(rounded(std::uniform_real_distribution(example.low[i], example.high[i])(random), t.dtype));
      }
    }
  return out;
}

TEST(Steps, OfAllParametersHaveTheBytesOfEach) {
  std::mt19937_64 random(seed());
  for (const char* op : {"adamw_step", "sgd_step", "lion_step"}) {
    const std::vector<Problem> problems = parameters(op, random);
    on_all_levels([&](const Level& level, bool again) {
      if (again) return;
      SCOPED_TRACE(op);
      // At addresses that take a vector, and at others.
      for (const int64_t off : {0, 4}) expect_same_as_alone(level, level.kernel(op), problems, {}, off);
    });
  }
}

TEST(Steps, WithCopiesHaveTheirBytesAndThoseOfTheSteps) {
  std::mt19937_64 random(seed());
  const std::vector<Problem> problems = parameters("adamw_step", random);
  on_all_levels([&](const Level& level, bool again) {
    if (again) return;
    for (const uint32_t dtype : {GALLEY_BF16, GALLEY_F16}) {
      sdk::Attrs attrs;
      attrs.s("dtype", dtype == GALLEY_BF16 ? "bf16" : "f16");
      std::deque<Problem> copies;
      std::deque<Placed> steps, made;
      std::deque<View> views;
      std::deque<galley_node_view> nodes;
      std::deque<galley_operand> parameter;
      std::deque<std::vector<const galley_operand*>> inputs;
      std::vector<const galley_node_view*> chains;
      for (const Problem& step : problems) {
        Problem& copy = copies.emplace_back();
        copy.op = models().op("copy");
        copy.name = step.name;
        copy.inputs = {step.inputs[0]};
        copy.attrs = attrs.data();
        copy.n_attrs = attrs.count();
        copy.infer();
        const Placed &a = steps.emplace_back(step), &b = made.emplace_back(copy);
        const View& first = views.emplace_back(step, a.inputs, a.outputs, std::vector<uint32_t>(), false);
        const View& second = views.emplace_back(copy, std::vector<void*>{a.inputs[0]}, b.outputs, std::vector<uint32_t>(), false);
        // What both nodes read is one operand, with one name.
        parameter.push_back(*first.node()->inputs[0]);
        parameter.back().name = copy.name.c_str();
        for (const View* view : {&first, &second}) {
          galley_node_view& node = nodes.emplace_back(*view->node());
          inputs.emplace_back(node.inputs, node.inputs + node.n_inputs)[0] = &parameter.back();
          node.inputs = inputs.back().data();
          chains.push_back(&node);
        }
      }
      std::string text;
      ASSERT_EQ(run(level.kernel("adamw_step>copy"), level.isa, chains, &text), GALLEY_OK) << text;
      for (size_t i = 0; i < problems.size(); ++i) {
        SCOPED_TRACE(problems[i].name);
        EXPECT_TRUE(steps[i].same(alone(level, problems[i])));
        const int64_t n = problems[i].inputs[0]->count();
        std::vector<double> wanted = unpack(steps[i].inputs[0], GALLEY_F32, n);
        for (double& x : wanted) x = rounded(x, dtype);
        EXPECT_EQ(unpack(made[i].outputs[0], dtype, n), wanted);
        EXPECT_TRUE(made[i].memory.back().intact());
      }
    }
  });
}

/// Every level computes the bits of the first one.
void expect_same_bits(const Problem& problem) {
  std::optional<Execution> first;
  for (const Level& level : models().levels) {
    SCOPED_TRACE(std::string(problem.op->name) + ", " + problem.name + " at " + level.isa);
    Execution made = execute(level.kernel(problem.op->name), level.isa, problem);
    ASSERT_EQ(made.status, GALLEY_OK) << made.text;
    EXPECT_TRUE(made.intact());
    if (first) {
      for (size_t i = 0; i < made.inputs.size(); ++i)
        EXPECT_EQ(std::memcmp(made.inputs[i].data(), first->inputs[i].data(), static_cast<size_t>(made.inputs[i].bytes())), 0) << i;
      for (size_t i = 0; i < made.outputs.size(); ++i)
        EXPECT_EQ(std::memcmp(made.outputs[i].data(), first->outputs[i].data(), static_cast<size_t>(made.outputs[i].bytes())), 0) << i;
    } else {
      first.emplace(std::move(made));
    }
  }
}

TEST(Steps, HaveTheSameBitsOnEveryLevel) {
  std::mt19937_64 random(seed());
  set_threads(2);
  for (const char* name :
       {"adamw_step", "sgd_step", "lion_step", "clip_factor", "clip_values", "update_scale", "bf16_pack", "bf16_unpack"}) {
    const galley_op* op = models().op(name);
    for (uint32_t k = 0; k < op->n_cases; ++k) expect_same_bits(Problem::draw(op, *op->cases[k], random));
  }
}

// Chunks of rows begin anywhere in a block of Philox, also past 2³² numbers.
TEST(Steps, RoundTheSameBitsWhereverAPartBegins) {
  std::mt19937_64 random(seed());
  const galley_op* op = models().op("bf16_pack");
  const double edges[] = {0.0,
                          -0.0,
                          INFINITY,
                          -INFINITY,
                          3.4e38,
                          -3.4028235e38,
                          3.3895314e38,
                          3.39e38,
                          1e-45,
                          1e-40,
                          -1.17549435e-38,
                          1.00390625,
                          1.01171875,
                          1 + 0x1p-7 + 0x1p-9,
                          65504.0,
                          -3.14159,
                          1 + 0x1p-8 + 0x1p-23};
  for (const char* stream : {"wte", "h.0.attn.c_attn.weight"})
    for (const int64_t first : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{5}, int64_t{6}, int64_t{7}, int64_t{2000000000}}) {
      sdk::Attrs attrs;
      attrs.s("stream", stream);
      Problem p;
      p.op = op;
      p.name = "part from row " + std::to_string(first);
      p.attrs = attrs.data();
      p.n_attrs = attrs.count();
      p.first_row = first;
      p.inputs = {Tensor{GALLEY_F32, {11, 13}, {}}, Tensor{GALLEY_I64, {4}, {static_cast<double>(random() % 1000), 7, 0, 0}}};
      for (int64_t i = 0; i < 143; ++i)
        p.inputs[0]->values.push_back(i % 3 ? std::uniform_real_distribution(-1.0, 1.0)(random)
                                            : edges[static_cast<size_t>(i / 3) % std::size(edges)]);
      p.infer();
      expect_same_bits(p);
      p.inputs[1].reset();
      expect_same_bits(p);
    }
}

}  // namespace
}  // namespace galley::test
