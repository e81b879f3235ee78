#include "host/proofs/lone_kernel.hpp"

#include <algorithm>
#include <deque>
#include <span>

#include "galley/kernel.h"
#include "host/exec/convert.hpp"
#include "host/exec/machine.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

int64_t size_of(const Numbers& n) { return n.count() * galley_dtype_bytes(n.dtype); }

void put(const Numbers& n, std::byte* to) {
  if (n.floating()) convert(to, n.dtype, n.floats.data(), GALLEY_F64, n.count());
  else std::copy(n.bytes.begin(), n.bytes.end(), to);
}
Numbers taken(const Numbers& like, const std::byte* from) {
  Numbers out = like;
  if (out.floating()) convert(out.floats.data(), GALLEY_F64, from, out.dtype, out.count());
  else out.bytes.assign(from, from + out.bytes.size());
  return out;
}

/// The node as an instruction of its own: operand i is tensor i, outputs after inputs.
Instruction instruction_of(const LoneNode& node, const Values& outputs) {
  std::vector<Operand> in, out;
  TensorId tensor = 0;
  const auto add = [&](const std::optional<Numbers>& n, uint32_t access, std::vector<Operand>& to) {
    Operand& o = to.emplace_back();
    if (n) {
      o.tensor = tensor;
      o.shape = n->shape;
      o.dtype = n->dtype;
      o.access = o.later = access;
    }
    ++tensor;
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) add(node.inputs[i], updates_input(node.op, i) ? GALLEY_READ_WRITE : GALLEY_READ, in);
  for (const auto& n : outputs) add(n, GALLEY_WRITE, out);
  return launch_of({node.name, node.op, node.attrs, node.flags, node.first_row, node.block}, std::move(in), std::move(out));
}

std::string operand_text(const galley_op* op, size_t k, bool output) {
  const galley_operand_rule* rule = output ? output_rule(op, k) : input_rule(op, k);
  return std::string(output ? "output " : "input ") + std::to_string(k) + " ('" + (rule ? rule->name : "") + "')";
}

/// Where a lone node's operands lie, then its workspace and its constants: tensors of a program without instructions, all in class 0.
struct Rooms {
  Program program;
  Plan plan;
  Rooms(const Target& target, int place) : line_(target.memories[0].alignment), place_(place) {
    plan.classes.resize(target.memories.size());
    end() = line_ * (1 + 5 * place);
  }
  void add(int64_t bytes) {
    program.tensors.emplace_back().bytes = bytes;
    plan.placements.push_back({end(), 0, 0});
    end() = round_up(end() + bytes, line_) + line_ * (1 + place_);
  }
  int64_t& end() { return plan.classes[0].planned; }
  std::span<std::byte> of(size_t tensor, std::vector<std::byte>& arena) const {
    return std::span(arena).subspan(static_cast<size_t>(plan.placements[tensor].offset),
                                    static_cast<size_t>(program.tensors[tensor].bytes));
  }

 private:
  int64_t line_;
  int place_;
};

/// What a launch has written that it may not write: "" if nothing. `own`: the tensors that are its own to write.
std::string written_elsewhere(const LoneNode& node, const Rooms& rooms, const std::vector<uint8_t>& own,
                              const std::vector<std::byte>& before, std::vector<std::byte> after) {
  std::vector<std::byte> expected = before;
  for (size_t t = 0; t < own.size(); ++t)
    if (own[t]) std::ranges::copy(rooms.of(t, after), rooms.of(t, expected).begin());
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (!std::ranges::equal(rooms.of(i, after), rooms.of(i, expected))) return "it writes to " + operand_text(node.op, i, false);
  return after == expected ? "" : "it writes outside of its operands";
}

}  // namespace

Result<KernelRun> run_kernel(const galley_kernel& kernel, const LoneNode& node, const Values& outputs, const Target& target,
                             const galley_device& device, int place) {
  const Instruction code = instruction_of(node, outputs);
  const auto attrs = node.attrs.view();
  struct Views {
    std::deque<galley_operand> operands;
    std::vector<const galley_operand*> in, out;
  };
  const auto node_at = [&](Views& views, const auto& address_of) {
    TensorId at = 0;
    for (const auto* operands : {&code.inputs, &code.outputs})
      for (const Operand& o : *operands) {
        void* const address = address_of(at++);
        auto& list = operands == &code.inputs ? views.in : views.out;
        list.push_back(o.present() ? &views.operands.emplace_back(operand_view(o, "", address, o.access)) : nullptr);
      }
    return node_view(code.launch()->nodes.front(), node.length, views.in, views.out, attrs);
  };
  Views of_planned, of_placed;
  const galley_node_view planned = node_at(of_planned, [](TensorId) { return nullptr; });
  const galley_node_view* const planned_list[] = {&planned};
  const TargetView view(target);
  const Caller caller = caller_of(&kernel, kernel.name);
  auto plan = new_struct<galley_kernel_plan>();
  KernelRun run;
  const Status asked = call_plugin(caller, std::string("query of kernel '") + kernel.name + "'", [&](galley_error* error) {
    const galley_status status = kernel.query(kernel.self, planned_list, 1, view.get(), &plan, error);
    if (status != GALLEY_UNSUPPORTED && status != GALLEY_INVALID) return status;
    run.refused = error->text[0] ? error->text : "it does not say why";
    return GALLEY_OK;
  });
  if (!asked.ok()) run.failed = asked.error().cause;
  else if (plan.workspace_bytes < 0 || plan.constants_bytes < 0) run.failed = "it asks for fewer than no bytes";
  if (!run.failed.empty() || !run.refused.empty()) return run;
  run.varies = plan.flags & GALLEY_PLAN_VARIES;

  Rooms rooms(target, place);
  std::vector<uint8_t> own;
  for (const Values* operands : {&node.inputs, &outputs})
    for (const auto& n : *operands) {
      own.push_back(operands == &outputs || updates_input(node.op, own.size()));
      rooms.add(n ? size_of(*n) : 0);
    }
  const auto workspace = static_cast<TensorId>(own.size()), constants = workspace + 1;
  for (const int64_t bytes : {plan.workspace_bytes, plan.constants_bytes}) {
    own.push_back(true);
    rooms.add(bytes);
  }
  std::vector<std::byte> before(static_cast<size_t>(rooms.end()), kJunk), after = before;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i]) put(*node.inputs[i], rooms.of(i, before).data());
  const std::unique_ptr<Machine> machine = TRY(Machine::open(rooms.program, rooms.plan, target, device, HostCopies::No));
  TRY_STATUS(machine->write_arena(0, 0, before));

  const galley_node_view placed = node_at(of_placed, [&](TensorId tensor) { return machine->kernel_address(tensor); });
  const galley_node_view* const placed_list[] = {&placed};
  auto setup = new_struct<galley_kernel_setup>();
  setup.target = view.get();
  setup.queue = machine->queue();
  setup.workspace = plan.workspace_bytes ? machine->kernel_address(workspace) : nullptr;
  setup.workspace_bytes = plan.workspace_bytes;
  setup.constants = plan.constants_bytes ? machine->kernel_address(constants) : nullptr;
  setup.constants_bytes = plan.constants_bytes;
  void* state = nullptr;
  const Status prepared = call_plugin(
      caller, "prepare", [&](galley_error* error) { return kernel.prepare(kernel.self, placed_list, 1, &setup, &state, error); },
      Phase::Run);
  if (!prepared.ok()) {
    run.failed = prepared.error().cause;
    return run;
  }
  Status ran = machine->launch(0, kernel, state, caller);
  if (ran.ok()) ran = machine->synchronize();
  (void)call_plugin(caller, "release", [&](galley_error*) {
    kernel.release(state);
    return GALLEY_OK;
  });
  if (!ran.ok()) {
    run.failed = ran.error().cause;
    return run;
  }
  TRY_STATUS(machine->read_arena(0, 0, after));
  run.failed = written_elsewhere(node, rooms, own, before, after);
  size_t tensor = 0;
  for (const Values* operands : {&node.inputs, &outputs})
    for (const auto& n : *operands) {
      const std::span<const std::byte> bytes = rooms.of(tensor, after);
      (operands == &node.inputs ? run.inputs : run.outputs).push_back(n ? std::optional(taken(*n, bytes.data())) : std::nullopt);
      if (n && own[tensor]) run.bytes.emplace_back(bytes.begin(), bytes.end());
      ++tensor;
    }
  return run;
}

Result<KernelError> kernel_error(const LoneNode& node, const Values& outputs, const KernelRun& run) {
  const Instruction code = instruction_of(node, outputs);
  const Reading reading = [&](const Operand& o) -> Result<Numbers> { return *node.inputs[static_cast<size_t>(o.tensor)]; };
  const LaunchNode& only = code.launch()->nodes.front();
  std::vector<std::vector<Made>> ways;
  for (int way = 0; way <= (can_move(code) ? kMoved : 0); ++way) ways.push_back(TRY(evaluate(code, node.length, reading, {}, way)));
  KernelError out;
  const auto hold = [&](size_t k, bool output) {
    const auto numbers = [&](size_t way) { return &*(output ? ways[way][0].outputs : ways[way][0].inputs)[k]; };
    std::vector<const Numbers*> moved;
    for (size_t way = 1; way < ways.size(); ++way) moved.push_back(numbers(way));
    const Rounding rounding = {unit_of(code, only), terms_of(code, only, k, output)};
    const Worst worst = compare(*(output ? run.outputs : run.inputs)[k], *numbers(0), moved, nullptr, rounding);
    if (worst.share <= out.share && !out.operand.empty()) return;
    out = {worst.share, operand_text(node.op, k, output), worst};
  };
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] && updates_input(node.op, i)) hold(i, false);
  for (size_t k = 0; k < outputs.size(); ++k)
    if (outputs[k]) hold(k, true);
  return out;
}

}  // namespace galley
