// Every gradient rule against finite differences of its op's reference: for each choice of inputs that need a gradient, writing to a new
// tensor, to one that is given, and adding to one.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/models/tape.hpp"

namespace galley::test {
namespace {

class Gradient : public testing::TestWithParam<Case> {};

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

bool differentiable(const galley_operand_rule* rule, const std::optional<Tensor>& t) {
  return t && floating(t->dtype) && !(rule->flags & GALLEY_OPERAND_NO_GRADIENT);
}

const galley_operand_rule* input_rule(const galley_op* op, size_t i) { return op->inputs[std::min<size_t>(i, op->n_inputs - 1)]; }

std::vector<double> direction(size_t n, std::mt19937_64& random) {
  std::vector<double> values(n);
  for (double& v : values) v = std::uniform_real_distribution(-1.0, 1.0)(random);
  return values;
}

struct Slope {
  std::vector<double> direction;
  double value;
};

// The derivative of Σ cotangent · output along a dense direction and along some single elements: five points, so that the error is of the
// fourth order. Outputs are subtracted before they are summed: those that do not change then add no rounding.
std::vector<Slope> measure(const Problem& problem, size_t input, const std::vector<std::vector<double>>& cotangents,
                           std::mt19937_64& random) {
  constexpr double h = 1e-3;
  const size_t n = problem.inputs[input]->values.size();
  std::vector<std::vector<double>> directions = {direction(n, random)};
  for (int k = 0; k < 8; ++k) {
    directions.emplace_back(n, 0.0);
    directions.back()[random() % n] = 1;
  }
  std::vector<Slope> slopes;
  for (std::vector<double>& direction : directions) {
    const auto at = [&](double step) {
      Problem moved = problem;
      for (size_t i = 0; i < n; ++i) moved.inputs[input]->values[i] += step * direction[i];
      run_reference(moved);
      return moved.outputs;
    };
    const auto right = at(h), left = at(-h), far_right = at(2 * h), far_left = at(-2 * h);
    double sum = 0;
    for (size_t o = 0; o < cotangents.size(); ++o)
      for (size_t e = 0; e < cotangents[o].size(); ++e)
        sum += cotangents[o][e] * (8 * (right[o]->values[e] - left[o]->values[e]) - (far_right[o]->values[e] - far_left[o]->values[e]));
    slopes.push_back({std::move(direction), sum / (12 * h)});
  }
  return slopes;
}

TEST_P(Gradient, EqualsFiniteDifferences) {
  const auto [op, example] = GetParam();
  std::mt19937_64 random(seed());
  SCOPED_TRACE("GALLEY_TEST_SEED=" + std::to_string(seed()));
  Problem problem = Problem::draw(op, *example, random);
  run_reference(problem);

  const bool loss = op->flags & GALLEY_OP_LOSS;
  const double loss_seed = 0.37;
  std::vector<std::vector<double>> cotangents(problem.outputs.size());
  for (size_t i = 0; i < problem.outputs.size(); ++i)
    if (differentiable(op->outputs[i], problem.outputs[i]))
      cotangents[i] = loss ? std::vector<double>(1, loss_seed) : direction(problem.outputs[i]->values.size(), random);

  std::vector<size_t> inputs;
  std::vector<std::vector<Slope>> slopes(problem.inputs.size());
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    if (!differentiable(input_rule(op, i), problem.inputs[i])) continue;
    inputs.push_back(i);
    slopes[i] = measure(problem, i, cotangents, random);
  }

  enum Given { Nothing, ToWrite, ToAddTo };
  for (uint32_t choice = 1; choice < 1u << inputs.size(); ++choice) {
    for (const Given given : {Nothing, ToWrite, ToAddTo}) {
      SCOPED_TRACE("inputs " + std::to_string(choice) + ", given " + std::to_string(given));
      Tape tape(models());
      std::vector<galley_tensor> input_ids, output_ids;
      const galley_node node = tape.forward(problem, &input_ids, &output_ids);
      tape.set_scalar(GALLEY_SCALAR_LOSS_SEED, {GALLEY_F32, {1}, {loss_seed}});
      std::vector<galley_tensor> d_outputs(problem.outputs.size(), 0), d_inputs(problem.inputs.size(), 0);
      for (size_t i = 0; i < problem.outputs.size(); ++i)
        if (!loss && !cotangents[i].empty())
          d_outputs[i] = tape.tensor({problem.outputs[i]->dtype, problem.outputs[i]->shape, cotangents[i]});
      std::vector<uint8_t> need(problem.inputs.size(), 0), accumulate(problem.inputs.size(), 0);
      std::vector<std::vector<double>> before(problem.inputs.size());
      for (size_t k = 0; k < inputs.size(); ++k) {
        if (!(choice >> k & 1)) continue;
        const size_t i = inputs[k];
        need[i] = 1;
        const Tensor& x = *problem.inputs[i];
        if (given == ToAddTo) {
          before[i] = direction(x.values.size(), random);
          accumulate[i] = 1;
        }
        if (given != Nothing)
          d_inputs[i] = tape.tensor({x.dtype, x.shape, given == ToAddTo ? before[i] : std::vector<double>(x.values.size(), NAN)});
      }
      const std::vector<galley_tensor> offered = d_inputs;
      const galley_gradient_call call = {sizeof call,
                                         1,
                                         node,
                                         d_outputs.data(),
                                         need.data(),
                                         d_inputs.data(),
                                         accumulate.data(),
                                         static_cast<uint32_t>(need.size()),
                                         static_cast<uint32_t>(d_outputs.size()),
                                         0};
      galley_error error = GALLEY_ERROR_INIT;
      ASSERT_EQ(op->gradient(op->self, Tape::verbs(), tape.handle(), &call, &error), GALLEY_OK) << error.text;
      ASSERT_NO_THROW(tape.evaluate());

      for (size_t i = 0; i < problem.inputs.size(); ++i) {
        if (!need[i]) {
          EXPECT_EQ(d_inputs[i], 0u) << "input " << i << " needs no gradient";
          continue;
        }
        ASSERT_NE(d_inputs[i], 0u) << "input " << i;
        std::vector<double> got = tape.value(d_inputs[i]).values;
        EXPECT_EQ(tape.value(d_inputs[i]).shape, problem.inputs[i]->shape);
        const uint32_t dtype = tape.value(d_inputs[i]).dtype;
        EXPECT_TRUE(dtype == problem.inputs[i]->dtype || dtype == GALLEY_F32) << "a gradient has the dtype of its tensor, or F32";
        ASSERT_EQ(got.size(), problem.inputs[i]->values.size());
        if (given == ToAddTo && d_inputs[i] == offered[i])
          for (size_t e = 0; e < got.size(); ++e) got[e] -= before[i][e];
        double size = 0;
        for (const Slope& s : slopes[i]) size = std::max(size, std::fabs(s.value));
        for (const Slope& s : slopes[i])
          EXPECT_NEAR(dot(got, s.direction), s.value, 1e-6 * (std::fabs(s.value) + size / std::sqrt(got.size()) + 1e-3)) << "input " << i;
      }
    }
  }
}

// Whether an operand is in 16 bit. The host differentiates graphs in F32 and casts afterwards, so that no rule meets one.
bool in_16_bit(const Case& c) {
  const auto is_16_bit = [](uint32_t dtype) { return dtype == GALLEY_BF16 || dtype == GALLEY_F16; };
  std::mt19937_64 random;
  const Problem problem = Problem::draw(c.op, *c.example, random);
  for (const auto* operands : {&problem.inputs, &problem.outputs})
    for (const auto& t : *operands)
      if (t && is_16_bit(t->dtype)) return true;
  return false;
}

std::vector<Case> with_gradient() {
  std::vector<Case> all = cases();
  std::erase_if(all, [](const Case& c) { return !c.op->gradient || c.op->flags & GALLEY_OP_ROUNDS || in_16_bit(c); });
  return all;
}

INSTANTIATE_TEST_SUITE_P(Ops, Gradient, testing::ValuesIn(with_gradient()), [](const auto& c) { return c.param.name(); });

}  // namespace
}  // namespace galley::test
