// Kernels of groups and chains: the bytes that the nodes have alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "galley/cpp/node.hpp"
#include "tests/models/harness.hpp"

namespace galley::test {
namespace {

/// A node's operands, with addresses of their own.
struct Placed {
  explicit Placed(const Problem& p) : problem(p) {
    for (const auto& t : p.inputs) {
      memory.push_back(t ? pack(*t, t->dtype) : Memory(0, 0));
      inputs.push_back(t ? memory.back().data() : nullptr);
    }
    for (const auto& t : p.outputs) {
      memory.emplace_back(t ? t->count() * galley_dtype_bytes(t->dtype) : 0, 0xFF);
      outputs.push_back(t ? memory.back().data() : nullptr);
    }
  }
  /// All operands have the bytes that they have where the node ran alone.
  bool same(const Execution& alone, size_t from = 0) const {
    for (size_t i = from; i < memory.size(); ++i) {
      const Memory& other = i < alone.inputs.size() ? alone.inputs[i] : alone.outputs[i - alone.inputs.size()];
      if (!memory[i].intact() || std::memcmp(memory[i].data(), other.data(), static_cast<size_t>(memory[i].bytes())) != 0) return false;
    }
    return true;
  }
  const Problem& problem;
  std::vector<Memory> memory;
  std::vector<void*> inputs, outputs;
};

galley_status run(const galley_kernel* kernel, const std::string& isa, const std::vector<const galley_node_view*>& nodes, std::string* text) {
  galley_target target = sdk::fresh<galley_target>();
  target.device = "cpu";
  target.isa = isa.c_str();
  target.threads = 2;
  target.workspace_budget = 64 << 20;
  auto plan = sdk::fresh<galley_kernel_plan>();
  galley_error error = GALLEY_ERROR_INIT;
  const auto n = static_cast<uint32_t>(nodes.size());
  galley_status status = kernel->query(nodes.data(), n, &target, &plan, &error);
  const Memory workspace(plan.workspace_bytes, 0xFF);
  auto setup = sdk::fresh<galley_kernel_setup>();
  setup.target = &target;
  setup.workspace = workspace.data();
  setup.workspace_bytes = plan.workspace_bytes;
  void* state = nullptr;
  if (status == GALLEY_OK) status = kernel->prepare(nodes.data(), n, &setup, &state, &error);
  if (status == GALLEY_OK) {
    status = kernel->enqueue(state, nullptr, &error);
    kernel->release(state);
  }
  *text = error.text;
  return status;
}

TEST(Groups, HaveTheBytesOfTheirNodes) {
  set_threads(2);
  std::mt19937_64 random(seed());
  int groups = 0;
  for (const Level& level : models().levels)
    for (const galley_kernel* kernel : level.kernels) {
      const galley_op* op = models().op(kernel->op);
      if (!op || !(kernel->flags & GALLEY_KERNEL_GROUPS)) continue;
      SCOPED_TRACE(std::string(kernel->name) + " at " + level.isa);
      std::vector<Problem> problems;
      for (uint32_t k = 0; k < op->n_cases; ++k) problems.push_back(Problem::draw(op, *op->cases[k], random));
      std::vector<Placed> placed(problems.begin(), problems.end());
      std::vector<std::unique_ptr<View>> views;
      std::vector<const galley_node_view*> nodes;
      for (const Placed& p : placed) {
        views.push_back(std::make_unique<View>(p.problem, p.inputs, p.outputs, std::vector<uint32_t>(), false));
        nodes.push_back(views.back()->node());
      }
      std::string text;
      ASSERT_EQ(run(kernel, level.isa, nodes, &text), GALLEY_OK) << text;
      for (const Placed& p : placed) EXPECT_TRUE(p.same(execute(kernel, level.isa, p.problem, {}))) << p.problem.name;
      ++groups;
    }
  EXPECT_GT(groups, 0);
}

/// add>norm for each case of the norm, with a sum that others read and with one that has no memory.
TEST(Chains, HaveTheBytesOfTheirLinks) {
  set_threads(2);
  std::mt19937_64 random(seed());
  for (const Level& level : models().levels)
    for (const std::string name : {"layer_norm", "rms_norm"}) {
      const galley_op *add = models().op("add"), *norm = models().op(name);
      const galley_kernel* chain = level.kernel("add>" + name);
      ASSERT_NE(chain, nullptr);
      for (uint32_t k = 0; k < norm->n_cases; ++k) {
        Problem normed = Problem::draw(norm, *norm->cases[k], random), sum;
        sum.op = add;
        sum.name = "sum";
        sum.inputs = {normed.inputs[0], normed.inputs[0]};
        std::reverse(sum.inputs[1]->values.begin(), sum.inputs[1]->values.end());
        sum.infer();
        const Execution added = execute(level.kernel("add"), level.isa, sum, {});
        normed.inputs[0]->values = unpack(added.outputs[0].data(), sum.outputs[0]->dtype, sum.outputs[0]->count());
        const Execution alone = execute(level.kernel(name), level.isa, normed, {});
        for (const bool kept : {true, false}) {
          SCOPED_TRACE(name + " of " + normed.name + " at " + level.isa + (kept ? ", kept" : ""));
          Placed first(sum), second(normed);
          std::memset(second.memory[0].data(), 0xFF, static_cast<size_t>(second.memory[0].bytes()));
          void* const between = kept ? first.outputs[0] : nullptr;
          const View sum_view(sum, first.inputs, {between}, {}, false);
          second.inputs[0] = between;
          const View norm_view(normed, second.inputs, second.outputs, {}, false);
          // What lies between has one name.
          galley_operand read = *norm_view.node()->inputs[0];
          read.name = sum_view.node()->outputs[0]->name;
          std::vector<const galley_operand*> inputs(norm_view.node()->inputs, norm_view.node()->inputs + norm_view.node()->n_inputs);
          inputs[0] = &read;
          galley_node_view node = *norm_view.node();
          node.inputs = inputs.data();
          std::string text;
          ASSERT_EQ(run(chain, level.isa, {sum_view.node(), &node}, &text), GALLEY_OK) << text;
          EXPECT_TRUE(!kept || first.same(added));
          EXPECT_TRUE(second.same(alone, 1));
        }
      }
    }
}

}  // namespace
}  // namespace galley::test
