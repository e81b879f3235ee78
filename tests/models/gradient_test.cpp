// Every gradient rule against finite differences of its op's reference: for each choice of inputs that need a gradient, writing to a new
// tensor, to one that is given, and adding to one (host/proofs/gradients.hpp).
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "host/proofs/gradients.hpp"
#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

class Gradient : public testing::TestWithParam<Case> {};

/// Ops are opened here without their plugins, so none is private to one.
const galley_op* op_named(std::string_view name) {
  static std::map<std::string, galley_op, std::less<>> ops;
  const auto known = ops.find(name);
  if (known != ops.end()) return &known->second;
  const galley_op* const op = models().op(std::string(name));
  if (!op) return nullptr;
  galley_op& own = ops.emplace(name, *op).first->second;
  own.flags &= ~uint64_t{GALLEY_OP_PRIVATE};
  return &own;
}

TEST_P(Gradient, EqualsFiniteDifferences) {
  const auto [op, example] = GetParam();
  std::mt19937_64 random(seed());
  SCOPED_TRACE("GALLEY_TEST_SEED=" + std::to_string(seed()));
  const Result<LoneNode> node = LoneNode::of(op, *example, random);
  ASSERT_TRUE(node) << node.error().cause;
  const Result<GradientCheck> check = check_gradient(*node, Depth::EveryChoice, op_named, random);
  ASSERT_TRUE(check) << check.error().cause;
  EXPECT_TRUE(check->unchecked.empty() || check->unchecked == "no input has a gradient") << check->unchecked;  // a copy of integers
  for (const GradientFault& fault : check->faults) ADD_FAILURE() << fault.input << ": " << fault.sentence;
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
