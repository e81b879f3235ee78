#include "host/proofs/lone_kernel.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <span>
#include <thread>

#include "galley/kernel.h"
#include "host/exec/convert.hpp"
#include "host/exec/machine.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/library.hpp"
#include "host/proofs/fenced.hpp"
#include "host/proofs/usage.hpp"

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

/// The input whose buffer an output may reuse, and is as large as it; -1: none.
int64_t reused_by(const LoneNode& node, const Values& outputs, size_t k) {
  const galley_operand_rule* rule = output_rule(node.op, k);
  if (!outputs[k] || !rule || rule->alias < 0 || static_cast<size_t>(rule->alias) >= node.inputs.size()) return -1;
  const auto& input = node.inputs[static_cast<size_t>(rule->alias)];
  const bool fits = input && size_of(*input) == size_of(*outputs[k]) && !updates_input(node.op, static_cast<size_t>(rule->alias));
  return fits ? rule->alias : -1;
}
bool can_add(const LoneNode& node, const Values& outputs, size_t k) {
  const galley_operand_rule* rule = output_rule(node.op, k);
  return outputs[k] && outputs[k]->floating() && rule && rule->flags & GALLEY_OPERAND_ACCUMULATES;
}
/// What outputs are added to: any numbers of the size of one.
Values beginnings(const LoneNode& node, const Values& outputs) {
  Values out(outputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!can_add(node, outputs, k)) continue;
    std::vector<double> numbers(outputs[k]->floats.size());
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<double>((i * 37 + 11 * k) % 17) / 8 - 1;
    out[k] = *outputs[k];
    out[k]->set(numbers);
  }
  return out;
}

/// The node as an instruction of its own: operand i is tensor i, outputs after inputs.
Instruction instruction_of(const LoneNode& node, const Values& outputs, const Values& begins = {}) {
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
  for (size_t k = 0; k < outputs.size(); ++k) add(outputs[k], k < begins.size() && begins[k] ? GALLEY_ACCUMULATE : GALLEY_WRITE, out);
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
  void add_at(int64_t tensor) {
    program.tensors.push_back(program.tensors[static_cast<size_t>(tensor)]);
    plan.placements.push_back(plan.placements[static_cast<size_t>(tensor)]);
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
                             const galley_device& device, const LaunchWay& way) {
  KernelRun run;
  if (way.adds) run.begins = beginnings(node, outputs);
  const Instruction code = instruction_of(node, outputs, run.begins);
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
  const galley_node_view* const planned_list[] = {&planned, &planned};
  const uint32_t n_nodes = way.group ? 2 : 1;
  const TargetView view(target);
  const Caller caller = caller_of(&kernel, kernel.name);
  auto plan = new_struct<galley_kernel_plan>();
  const Status asked = call_plugin(caller, std::string("query of kernel '") + kernel.name + "'", [&](galley_error* error) {
    const galley_status status = kernel.query(kernel.self, planned_list, n_nodes, view.get(), &plan, error);
    if (status != GALLEY_UNSUPPORTED && status != GALLEY_INVALID) return status;
    run.refused = error->text[0] ? error->text : "it does not say why";
    return GALLEY_OK;
  });
  if (!asked.ok()) run.failed = asked.error().cause;
  else if (plan.workspace_bytes < 0 || plan.constants_bytes < 0) run.failed = "it asks for fewer than no bytes";
  if (!run.failed.empty() || !run.refused.empty()) return run;
  run.varies = plan.flags & GALLEY_PLAN_VARIES;

  Rooms rooms(target, way.place);
  std::vector<uint8_t> own;
  const auto room = [&](bool is_own, int64_t bytes) {
    own.push_back(is_own);
    rooms.add(bytes);
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) room(updates_input(node.op, i), node.inputs[i] ? size_of(*node.inputs[i]) : 0);
  for (size_t k = 0; k < outputs.size(); ++k) {
    const int64_t reused = way.in_place ? reused_by(node, outputs, k) : -1;
    if (reused < 0) {
      room(true, outputs[k] ? size_of(*outputs[k]) : 0);
    } else {
      own[static_cast<size_t>(reused)] = true;
      own.push_back(true);
      rooms.add_at(reused);
    }
  }
  const auto workspace = static_cast<TensorId>(own.size()), constants = workspace + 1, others = workspace + 2;
  for (const int64_t bytes : {plan.workspace_bytes, plan.constants_bytes}) room(true, bytes);
  // Of the node beside it, prepare may fill the constants. That in its group is launched, too, and shares workspace and constants.
  const bool other = way.beside || way.group;
  for (TensorId t = 0; other && t < others; ++t) {
    const auto like = static_cast<size_t>(t);
    room(way.beside ? t == constants : t < workspace && own[like], rooms.program.tensors[like].bytes);
  }
  std::vector<std::byte> before(static_cast<size_t>(rooms.end()), kJunk), after = before;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i]) put(*node.inputs[i], rooms.of(i, before).data());
  for (size_t k = 0; k < run.begins.size(); ++k)
    if (run.begins[k]) put(*run.begins[k], rooms.of(node.inputs.size() + k, before).data());
  for (size_t i = 0; way.group && i < node.inputs.size(); ++i) {
    if (!node.inputs[i]) continue;
    Numbers n = *node.inputs[i];
    for (double& x : n.floats) x /= static_cast<double>(i + 2);
    put(n, rooms.of(static_cast<size_t>(others) + i, before).data());
  }
  const std::unique_ptr<Machine> machine = TRY(Machine::open(rooms.program, rooms.plan, target, device, HostCopies::No));
  TRY_STATUS(machine->write_arena(0, 0, before));
  const bool fenced = way.edge != Edge::None && !machine->arena(0).empty() && !machine->queue();
  Fenced fences(way.edge);
  std::vector<std::byte*> alone;
  for (size_t t = 0; fenced && t < rooms.program.tensors.size(); ++t) alone.push_back(fences.add(rooms.of(t, before)));
  if (std::ranges::find(alone, nullptr) != alone.end()) return run_error("the system gives no more memory");
  const auto address = [&](TensorId tensor) -> void* {
    return fenced ? alone[static_cast<size_t>(tensor)] : machine->kernel_address(tensor);
  };

  const galley_node_view placed = node_at(of_placed, address);
  Views of_beside;
  const galley_node_view beside = node_at(of_beside, [&](TensorId tensor) { return other ? address(others + tensor) : nullptr; });
  const bool after_it = way.group == 2;
  const galley_node_view* const placed_list[] = {after_it ? &beside : &placed, after_it ? &placed : &beside};
  const galley_node_view* const beside_list[] = {&beside};
  const auto setup_at = [&](TensorId first) {
    auto setup = new_struct<galley_kernel_setup>();
    setup.target = view.get();
    setup.queue = machine->queue();
    setup.workspace = plan.workspace_bytes ? address(first + workspace) : nullptr;
    setup.workspace_bytes = plan.workspace_bytes;
    setup.constants = plan.constants_bytes ? address(first + constants) : nullptr;
    setup.constants_bytes = plan.constants_bytes;
    return setup;
  };
  const auto prepare = [&](const galley_node_view* const* list, const galley_kernel_setup& setup, void** state) {
    return call_plugin(
        caller, "prepare", [&](galley_error* error) { return kernel.prepare(kernel.self, list, n_nodes, &setup, state, error); },
        Phase::Run);
  };
  const auto release = [&](void* state) {
    return call_plugin(caller, "release", [&](galley_error*) {
      kernel.release(state);
      return GALLEY_OK;
    });
  };
  const galley_kernel_setup setup = setup_at(0), setup_beside = setup_at(way.beside ? others : 0);
  char none = 0;
  void *state = &none, *state_beside = &none;
  Status prepared = prepare(placed_list, setup, &state);
  if (prepared.ok() && way.beside) prepared = prepare(beside_list, setup_beside, &state_beside);
  if (!prepared.ok()) {
    run.failed = prepared.error().cause;
    return run;
  }
  if (state == &none) {
    run.failed = "it sets no state in prepare";
    return run;
  }
  // What prepare has put into the constants stays for all launches.
  std::vector<std::byte> first, constant(static_cast<size_t>(plan.constants_bytes));
  if (!fenced) {
    TRY_STATUS(machine->synchronize());
    TRY_STATUS(machine->read_arena(0, 0, after));
    std::ranges::copy(rooms.of(static_cast<size_t>(constants), after), constant.begin());
  }
  Status ran = ok();
  int64_t used = 0;
  for (int launch = 0; launch < way.launches && ran.ok(); ++launch) {
    if (launch > 0) {
      std::vector<std::byte> again = before;
      std::ranges::copy(constant, rooms.of(static_cast<size_t>(constants), again).begin());
      TRY_STATUS(machine->write_arena(0, 0, again));
    }
    if (launch == 1) used = memory_in_use();
    ran = machine->launch(0, kernel, state, caller);
    if (ran.ok()) ran = machine->synchronize();
    if (launch > 0 && launch + 1 == way.launches) run.left = (memory_in_use() - used) / launch;
    if (!ran.ok() || way.launches == 1) continue;
    TRY_STATUS(machine->read_arena(0, 0, after));
    if (launch == 0) first = after;
    for (size_t t = 0; t < own.size() && static_cast<TensorId>(t) != workspace; ++t)
      run.unsteady = run.unsteady || (own[t] && !std::ranges::equal(rooms.of(t, first), rooms.of(t, after)));
  }
  if (ran.ok() && way.launches > 1 && !machine->queue()) {
    constexpr std::chrono::milliseconds moment(40);
    std::this_thread::sleep_for(moment);
    std::vector<std::byte> later = after;
    TRY_STATUS(machine->read_arena(0, 0, later));
    run.goes_on = later != after;
  }
  for (Status released : {way.beside ? release(state_beside) : ok(), release(state)})
    if (ran.ok()) ran = std::move(released);
  if (!ran.ok()) {
    run.failed = ran.error().cause;
    return run;
  }
  if (fenced) {
    after = before;
    for (size_t t = 0; t < alone.size(); ++t) {
      const std::span<std::byte> to = rooms.of(t, after);
      std::copy_n(alone[t], to.size(), to.begin());
    }
  } else {
    TRY_STATUS(machine->read_arena(0, 0, after));
  }
  run.failed = written_elsewhere(node, rooms, own, before, after);
  size_t tensor = 0;
  for (const Values* operands : {&node.inputs, &outputs})
    for (const auto& n : *operands) {
      const std::span<const std::byte> bytes = rooms.of(tensor, after);
      (operands == &node.inputs ? run.inputs : run.outputs).push_back(n ? std::optional(taken(*n, bytes.data())) : std::nullopt);
      if (n && (operands == &outputs || updates_input(node.op, tensor))) run.bytes.emplace_back(bytes.begin(), bytes.end());
      ++tensor;
    }
  return run;
}

bool adds_into(const LoneNode& node, const Values& outputs) {
  for (size_t k = 0; k < outputs.size(); ++k)
    if (can_add(node, outputs, k)) return true;
  return false;
}

bool reuses_inputs(const LoneNode& node, const Values& outputs) {
  for (size_t k = 0; k < outputs.size(); ++k)
    if (reused_by(node, outputs, k) >= 0) return true;
  return false;
}

Result<KernelError> kernel_error(const LoneNode& node, const Values& outputs, const KernelRun& run) {
  const Instruction code = instruction_of(node, outputs, run.begins);
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
    const Numbers* const before = output && k < run.begins.size() && run.begins[k] ? &*run.begins[k] : nullptr;
    const Worst worst = compare(*(output ? run.outputs : run.inputs)[k], *numbers(0), moved, before, rounding);
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
