#include "tests/models/together.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "galley/cpp/node.hpp"

namespace galley::test {

Placed::Placed(const Problem& p, const How& how_, int64_t off) : problem(p), how(how_) {
  const auto whole = [&](const Tensor& t) { return off % galley_dtype_bytes(t.dtype) ? 0 : off; };
  for (const auto& t : p.inputs) {
    memory.push_back(t ? pack(*t, t->dtype, whole(*t)) : Memory(0, 0));
    inputs.push_back(t ? memory.back().data() : nullptr);
  }
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    const auto& t = p.outputs[i];
    if (t && i < how.initial.size()) memory.push_back(pack({t->dtype, t->shape, how.initial[i]}, t->dtype, whole(*t)));
    else memory.emplace_back(t ? t->count() * galley_dtype_bytes(t->dtype) : 0, 0xFF, t ? whole(*t) : 0);
    outputs.push_back(t ? memory.back().data() : nullptr);
  }
}

bool Placed::same(const Execution& alone, size_t from) const {
  for (size_t i = from; i < memory.size(); ++i) {
    const Memory& other = i < alone.inputs.size() ? alone.inputs[i] : alone.outputs[i - alone.inputs.size()];
    if (!memory[i].intact() || std::memcmp(memory[i].data(), other.data(), static_cast<size_t>(memory[i].bytes())) != 0) return false;
  }
  return true;
}

galley_status run(const galley_kernel* kernel, const std::string& isa, const std::vector<const galley_node_view*>& nodes,
                  std::string* text) {
  const Launch made = launch(kernel, isa, nodes, nodes);
  EXPECT_TRUE(made.workspace.intact() && made.constants.intact());
  *text = made.text;
  return made.status;
}

Linked::Linked(const Problem& first, const Problem& second, size_t place_, Between between_, int64_t off)
    : one(first, {}, off), two(second, {}, off), place(place_), between(between_) {
  void*& made = one.outputs.empty() ? one.inputs[0] : one.outputs[0];
  if (between == Between::NoMemory) made = nullptr;
  std::memset(two.memory[place].data(), 0xFF, static_cast<size_t>(two.memory[place].bytes()));
  two.inputs[place] = made;
}

Launch Linked::run(const galley_kernel* chain, const std::string& isa, const std::vector<uint32_t>& access, int times) const {
  const bool updates = one.outputs.empty();
  const std::vector<void*> none;
  // What lies between has one name, and no other operand has it.
  struct Nodes {
    View first, second;
    galley_node_view views[2];
    galley_operand from, to;
    std::vector<const galley_operand*> makes, reads;
  };
  const auto link = [&](Nodes& n) {
    n.views[0] = *n.first.node(), n.views[1] = *n.second.node();
    n.makes.assign(updates ? n.views[0].inputs : n.views[0].outputs,
                   updates ? n.views[0].inputs + n.views[0].n_inputs : n.views[0].outputs + n.views[0].n_outputs);
    n.reads.assign(n.views[1].inputs, n.views[1].inputs + n.views[1].n_inputs);
    n.from = *n.makes[0], n.to = *n.reads[place];
    n.from.name = n.to.name = "between";
    if (between == Between::NoMemory) n.from.flags = n.to.flags = GALLEY_OPERAND_NO_MEMORY;
    n.makes[0] = &n.from, n.reads[place] = updates ? &n.from : &n.to;
    (updates ? n.views[0].inputs : n.views[0].outputs) = n.makes.data();
    n.views[1].inputs = n.reads.data();
  };
  Nodes planned = {{one.problem, none, none, {}, false}, {two.problem, none, none, access, false}, {}, {}, {}, {}, {}};
  Nodes placed = {
      {one.problem, one.inputs, one.outputs, {}, false}, {two.problem, two.inputs, two.outputs, access, false}, {}, {}, {}, {}, {}};
  link(planned);
  link(placed);
  return launch(chain, isa, {&planned.views[0], &planned.views[1]}, {&placed.views[0], &placed.views[1]}, times);
}

bool Linked::intact() const {
  for (const Placed* node : {&one, &two})
    for (const Memory& memory : node->memory)
      if (!memory.intact()) return false;
  return true;
}

const galley_kernel* chosen(const Level& level, const Problem& problem, const How& how) {
  const galley_kernel* best = nullptr;
  int64_t priority = 0;
  for (const galley_kernel* kernel : level.kernels) {
    auto plan = sdk::fresh<galley_kernel_plan>();
    galley_error error = GALLEY_ERROR_INIT;
    if (std::strcmp(kernel->op, problem.op->name) != 0 || query(kernel, level.isa, problem, how, &plan, &error) != GALLEY_OK) continue;
    if (best && (plan.priority < priority || (plan.priority == priority && std::strcmp(kernel->name, best->name) >= 0))) continue;
    best = kernel;
    priority = plan.priority;
  }
  EXPECT_NE(best, nullptr);
  return best;
}

Execution alone(const Level& level, const Problem& problem, const How& how) {
  return execute(chosen(level, problem, how), level.isa, problem, how);
}

void on_all_levels(const std::function<void(const Level&, bool only_bf16)>& body) {
  set_threads(2);
  // Instructions for BF16: the machine's, only those of vectors, and none.
  for (const std::optional<double> bf16 : {std::optional<double>(), std::optional<double>(2), std::optional<double>(0)})
    for (const Level& level : models().levels) {
      if (bf16 && (level.isa != "x86-64-v4" || (*bf16 > 0 && !__builtin_cpu_supports("avx512bf16")))) continue;
      SCOPED_TRACE(level.isa + (bf16 ? ", BF16 " + std::to_string(*bf16) : ""));
      set_bf16_per_f32(bf16);
      body(level, bf16.has_value());
    }
  set_bf16_per_f32({});
}

void expect_same_as_alone(const Level& level, const galley_kernel* kernel, const std::vector<Problem>& problems,
                          const std::vector<How>& how, int64_t off) {
  std::vector<std::unique_ptr<Placed>> placed;
  std::vector<std::unique_ptr<View>> views;
  std::vector<const galley_node_view*> nodes;
  for (size_t i = 0; i < problems.size(); ++i) {
    placed.push_back(std::make_unique<Placed>(problems[i], how.empty() ? How() : how[i], off));
    const Placed& p = *placed.back();
    views.push_back(std::make_unique<View>(p.problem, p.inputs, p.outputs, p.how.access, false));
    nodes.push_back(views.back()->node());
  }
  std::string text;
  ASSERT_EQ(run(kernel, level.isa, nodes, &text), GALLEY_OK) << text;
  for (const auto& p : placed) EXPECT_TRUE(p->same(alone(level, p->problem, p->how))) << p->problem.name;
}

}  // namespace galley::test
