#include "host/proofs/lone_kernel.hpp"

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
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

/// An operand of a launch, of which the tensor is that of its place among all: inputs of all nodes, components of those in formats, then
/// outputs of all nodes.
struct Laid {
  const LoneNode* node;
  size_t link, k;
  bool output, component;
  const std::optional<Numbers>* numbers;
  Operand operand;
  bool has_room = false;  ///< memory of its own

  bool updated() const { return !output && updates_input(node->op, k); }
  std::string text() const {
    const galley_operand_rule* rule = output ? output_rule(node->op, k) : input_rule(node->op, k);
    return std::string(component ? "a component of " : "") + (output ? "output " : "input ") + std::to_string(k) + " ('" +
           (rule ? rule->name : "") + "')";
  }
};
std::vector<Laid> laid_out(const LoneLaunch& launch, const Values& begins) {
  std::vector<Laid> out;
  std::vector<size_t> first_input, first_output;
  const auto add = [&](size_t link, size_t k, bool output, bool component, const std::optional<Numbers>& n) {
    Laid& laid = out.emplace_back(Laid{launch.links[link].node, link, k, output, component, &n, {}});
    if (!n) return;
    laid.has_room = true;
    Operand& o = laid.operand;
    o.tensor = static_cast<TensorId>(out.size() - 1);
    o.shape = n->shape;
    o.dtype = n->dtype;
    const uint32_t written = k < begins.size() && begins[k] ? GALLEY_ACCUMULATE : GALLEY_WRITE;
    o.access = o.later = laid.updated() ? GALLEY_READ_WRITE : output ? written : GALLEY_READ;
  };
  for (size_t l = 0; l < launch.links.size(); ++l) {
    first_input.push_back(out.size());
    const Values& inputs = launch.links[l].node->inputs;
    for (size_t k = 0; k < inputs.size(); ++k) add(l, k, false, false, inputs[k]);
  }
  for (size_t l = 0; l < launch.links.size(); ++l)
    for (const auto& [k, in_format] : launch.links[l].formats) {
      auto format = std::make_shared<OperandFormat>(in_format->format);
      format->view = format->attrs.view();
      format->first = out.size();
      for (const auto& component : in_format->components)
        if (component) add(l, k, false, true, component), ++format->count;
      Laid& laid = out[first_input[l] + k];
      laid.has_room = false;
      laid.operand.tensor = no_tensor;
      laid.operand.format = std::move(format);
    }
  for (size_t l = 0; l < launch.links.size(); ++l) {
    first_output.push_back(out.size());
    const Values& outputs = *launch.links[l].outputs;
    for (size_t k = 0; k < outputs.size(); ++k) add(l, k, true, false, outputs[k]);
  }
  for (size_t l = 1; l < launch.links.size(); ++l) {
    const bool updates = launch.links[l - 1].outputs->empty();
    Laid &made = out[updates ? first_input[l - 1] : first_output[l - 1]], &read = out[first_input[l] + launch.links[l].reads];
    read.has_room = false;
    read.operand.inner = static_cast<uint32_t>(l);
    read.operand.tensor = made.operand.tensor;
    if (updates || launch.kept) continue;
    made.has_room = false;
    made.operand.inner = read.operand.inner;
    made.operand.tensor = read.operand.tensor = no_tensor;
  }
  return out;
}

/// The launch as an instruction: inputs of all nodes, then outputs of all nodes.
Instruction instruction_of(const LoneLaunch& launch, const std::vector<Laid>& laid) {
  Instruction out;
  Launch& made = *out.launch();
  made.nodes.clear();
  made.links = launch.links.size();
  size_t inputs = 0, outputs = 0;  // of the nodes before
  for (const LoneLaunch::Link& link : launch.links) {
    const LoneNode& node = *link.node;
    LaunchNode& of = made.nodes.emplace_back(LaunchNode{node.name, node.op, node.attrs, node.flags, node.first_row, node.block});
    of.inputs = {inputs, node.inputs.size()};
    of.outputs = {outputs, link.outputs->size()};
    inputs += of.inputs.count;
    outputs += of.outputs.count;
    out.name += (out.name.empty() ? "" : ">") + node.name;
  }
  for (const Laid& o : laid) (o.output ? out.outputs : out.inputs).push_back(o.operand);
  return out;
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
std::string written_elsewhere(const std::vector<Laid>& laid, const Rooms& rooms, const std::vector<uint8_t>& own,
                              const std::vector<std::byte>& before, std::vector<std::byte> after) {
  std::vector<std::byte> expected = before;
  for (size_t t = 0; t < own.size(); ++t)
    if (own[t]) std::ranges::copy(rooms.of(t, after), rooms.of(t, expected).begin());
  for (size_t i = 0; i < laid.size() && !laid[i].output; ++i)
    if (!std::ranges::equal(rooms.of(i, after), rooms.of(i, expected))) return "it writes to " + laid[i].text();
  return after == expected ? "" : "it writes outside of its operands";
}

/// The nodes of a launch as plugins see them, with an address for each tensor.
class LaunchViews {
 public:
  template <class AddressOf>
  LaunchViews(const LoneLaunch& launch, const Instruction& code, TensorId first, const AddressOf& address_of) {
    std::vector<std::pair<galley_operand*, size_t>> in_formats;
    for (const auto* operands : {&code.inputs, &code.outputs})
      for (const Operand& o : *operands) {
        auto& list = operands == &code.inputs ? in_ : out_;
        list.push_back(nullptr);
        if (!o.given()) continue;
        // One name for the same bytes, and for nothing else.
        const std::string& name =
            names_.emplace_back(o.present() ? std::to_string(first + o.tensor)
                                : o.format  ? o.format->name + " " + std::to_string(first + static_cast<TensorId>(list.size()))
                                            : "between " + std::to_string(o.inner));
        galley_operand& view =
            operands_.emplace_back(operand_view(o, name.c_str(), o.present() ? address_of(first + o.tensor) : nullptr, o.access));
        list.back() = &view;
        if (o.format) in_formats.emplace_back(&view, o.format->first);
      }
    for (const auto& [view, component] : in_formats) view->components = in_.data() + component;
    for (size_t l = 0; l < launch.links.size(); ++l) {
      const LaunchNode& node = code.launch()->nodes[l];
      const auto of = [](const auto& list, const OperandRange& range) { return std::span(list).subspan(range.first, range.count); };
      nodes_.push_back(node_view(node, launch.links[l].node->length, of(in_, node.inputs), of(out_, node.outputs),
                                 attrs_.emplace_back(node.attrs.view())));
    }
  }
  void add_to(std::vector<const galley_node_view*>& list) const {
    for (const galley_node_view& node : nodes_) list.push_back(&node);
  }

 private:
  std::deque<std::string> names_;
  std::deque<galley_operand> operands_;
  std::vector<const galley_operand*> in_, out_;
  std::deque<std::vector<const galley_attr*>> attrs_;
  std::deque<galley_node_view> nodes_;
};

}  // namespace

Result<KernelRun> run_kernel(const galley_kernel& kernel, const LoneLaunch& launch, const Target& target, const galley_device& device,
                             const LaunchWay& way) {
  const LoneNode& node = *launch.links.front().node;  // of one alone, `adds` and `in_place` are asked
  const Values& outputs = *launch.links.front().outputs;
  KernelRun run;
  if (way.adds) run.begins = beginnings(node, outputs);
  const std::vector<Laid> laid = laid_out(launch, run.begins);
  const Instruction code = instruction_of(launch, laid);
  const auto workspace = static_cast<TensorId>(laid.size()), constants = workspace + 1, others = workspace + 2;
  const auto nowhere = [](TensorId) -> void* { return nullptr; };
  const LaunchViews of_planned(launch, code, 0, nowhere), planned_beside(launch, code, others, nowhere);
  std::vector<const galley_node_view*> planned_list;
  of_planned.add_to(planned_list);
  if (way.group) planned_beside.add_to(planned_list);
  const auto n_nodes = static_cast<uint32_t>(planned_list.size());
  const TargetView view(target);
  const Caller caller = caller_of(&kernel, kernel.name);
  auto plan = new_struct<galley_kernel_plan>();
  const Status asked = call_plugin(caller, std::string("query of kernel '") + kernel.name + "'", [&](galley_error* error) {
    const galley_status status = kernel.query(kernel.self, planned_list.data(), n_nodes, view.get(), &plan, error);
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
  for (const Laid& o : laid) {
    const int64_t reused = o.output && way.in_place ? reused_by(node, outputs, o.k) : -1;
    if (reused < 0) {
      room(o.output || o.updated(), o.has_room ? size_of(**o.numbers) : 0);
    } else {
      own[static_cast<size_t>(reused)] = true;
      own.push_back(true);
      rooms.add_at(reused);
    }
  }
  for (const int64_t bytes : {plan.workspace_bytes, plan.constants_bytes}) room(true, bytes);
  // Of the node beside it, prepare may fill the constants. That in its group is launched, too, and shares workspace and constants.
  const bool other = way.beside || way.group;
  for (TensorId t = 0; other && t < others; ++t) {
    const auto like = static_cast<size_t>(t);
    room(way.beside ? t == constants : t < workspace && own[like], rooms.program.tensors[like].bytes);
  }
  std::vector<std::byte> before(static_cast<size_t>(rooms.end()), kJunk), after = before;
  for (size_t t = 0; t < laid.size(); ++t) {
    if (!laid[t].has_room) continue;
    if (laid[t].output && laid[t].k < run.begins.size() && run.begins[laid[t].k]) put(*run.begins[laid[t].k], rooms.of(t, before).data());
    if (laid[t].output) continue;
    put(**laid[t].numbers, rooms.of(t, before).data());
    if (!way.group) continue;
    Numbers n = **laid[t].numbers;
    for (double& x : n.floats) x /= static_cast<double>(t + 2);
    put(n, rooms.of(static_cast<size_t>(others) + t, before).data());
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

  const LaunchViews of_placed(launch, code, 0, address);
  const auto address_beside = [&](TensorId tensor) { return other ? address(tensor) : nullptr; };
  const LaunchViews of_beside(launch, code, others, address_beside);
  std::vector<const galley_node_view*> placed_list, beside_list;
  of_beside.add_to(beside_list);
  if (way.group == 2) of_beside.add_to(placed_list);
  of_placed.add_to(placed_list);
  if (way.group == 1) of_beside.add_to(placed_list);
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
  const auto prepare = [&](const std::vector<const galley_node_view*>& list, const galley_kernel_setup& setup, void** state) {
    const auto n = static_cast<uint32_t>(list.size());
    return call_plugin(
        caller, "prepare", [&](galley_error* error) { return kernel.prepare(kernel.self, list.data(), n, &setup, state, error); },
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
  for (int turn = 0; turn < way.launches && ran.ok(); ++turn) {
    if (turn > 0) {
      std::vector<std::byte> again = before;
      std::ranges::copy(constant, rooms.of(static_cast<size_t>(constants), again).begin());
      TRY_STATUS(machine->write_arena(0, 0, again));
    }
    const int64_t used = memory_in_use();
    ran = machine->launch(0, kernel, state, caller);
    if (ran.ok()) ran = machine->synchronize();
    // The least of all: a thread that comes to work late makes itself room once.
    if (turn > 0) run.left = turn == 1 ? memory_in_use() - used : std::min(run.left, memory_in_use() - used);
    if (!ran.ok() || way.launches == 1) continue;
    TRY_STATUS(machine->read_arena(0, 0, after));
    if (turn == 0) first = after;
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
  run.failed = written_elsewhere(laid, rooms, own, before, after);
  for (size_t t = 0; t < laid.size(); ++t) {
    const std::span<const std::byte> bytes = rooms.of(t, after);
    (laid[t].output ? run.outputs : run.inputs)
        .push_back(laid[t].has_room ? std::optional(taken(**laid[t].numbers, bytes.data())) : std::nullopt);
    if (laid[t].has_room && (laid[t].output || laid[t].updated())) run.bytes.emplace_back(bytes.begin(), bytes.end());
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

Result<KernelError> kernel_error(const LoneLaunch& launch, const KernelRun& run) {
  const std::vector<Laid> laid = laid_out(launch, run.begins);
  const Instruction code = instruction_of(launch, laid);
  const Reading reading = [&](const Operand& o) -> Result<Numbers> { return **laid[static_cast<size_t>(o.tensor)].numbers; };
  const Reading now = [&](const Operand& o) -> Result<Numbers> { return *run.inputs[static_cast<size_t>(o.tensor)]; };
  const FindFormat formats = [&](const std::string& name) {
    for (const LoneLaunch::Link& link : launch.links)
      for (const auto& [k, format] : link.formats)
        if (format->format.name == name) return format->ops;
    return FormatOps();
  };
  const int64_t length = launch.links.front().node->length;
  std::vector<std::vector<Made>> ways;
  for (int way = 0; way <= (can_move(code) ? kMoved : 0); ++way) ways.push_back(TRY(evaluate(code, length, reading, formats, way)));
  KernelError out;
  for (size_t t = 0; t < laid.size(); ++t) {
    const Laid& o = laid[t];
    if (o.component || !(o.has_room || o.operand.format) || !(o.output || o.updated())) continue;
    const Numbers got = o.operand.format ? TRY(unpacked(code, o.operand, length, now, formats))
                                         : *(o.output ? run.outputs[t - run.inputs.size()] : run.inputs[t]);
    const Numbers* const was = o.output && o.k < run.begins.size() && run.begins[o.k] ? &*run.begins[o.k] : nullptr;
    const Worst worst = TRY(compare(code, o.operand, length, got, expected_of(code, ways, o.link, o.k, o.output), was, formats));
    if (worst.share <= out.share && !out.operand.empty()) continue;
    out = {worst.share, (launch.links.size() > 1 ? o.node->op->name + std::string(", ") : "") + o.text(), worst};
  }
  return out;
}

}  // namespace galley
