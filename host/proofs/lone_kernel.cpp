#include "host/proofs/lone_kernel.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "galley/kernel.h"
#include "host/exec/convert.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

constexpr size_t kLine = 64;

/// Bytes at an address of 64, a few lines further on for each place.
class Room {
 public:
  Room(int64_t bytes, int place) : storage_(static_cast<size_t>(bytes) + kLine * static_cast<size_t>(2 + 5 * place), std::byte{0xff}) {
    const auto begin = reinterpret_cast<uintptr_t>(storage_.data());
    data_ = storage_.data() + (kLine - begin % kLine) % kLine + kLine * static_cast<size_t>(5 * place);
  }
  std::byte* data() const { return data_; }

 private:
  std::vector<std::byte> storage_;
  std::byte* data_;
};

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

}  // namespace

Result<KernelRun> run_kernel(const galley_kernel& kernel, const LoneNode& node, const Values& outputs, const Target& target, int place) {
  const Instruction code = instruction_of(node, outputs);
  std::deque<Room> rooms;
  std::vector<std::byte*> addresses;
  for (const Values* operands : {&node.inputs, &outputs})
    for (const auto& n : *operands) {
      addresses.push_back(n ? rooms.emplace_back(size_of(*n), place).data() : nullptr);
      if (n && operands == &node.inputs) put(*n, addresses.back());
    }
  const auto view_of = [&](bool placed, std::deque<galley_operand>& views, std::vector<const galley_operand*>& in,
                           std::vector<const galley_operand*>& out, const std::vector<const galley_attr*>& attrs) {
    size_t at = 0;
    for (const auto* operands : {&code.inputs, &code.outputs})
      for (const Operand& o : *operands) {
        auto& list = operands == &code.inputs ? in : out;
        std::byte* const address = addresses[at++];
        list.push_back(o.present() ? &views.emplace_back(operand_view(o, "", placed ? address : nullptr, o.access)) : nullptr);
      }
    return node_view(code.launch()->nodes.front(), node.length, in, out, attrs);
  };
  const auto attrs = node.attrs.view();
  std::deque<galley_operand> of_planned, of_placed;
  std::vector<const galley_operand*> in_planned, out_planned, in_placed, out_placed;
  const galley_node_view planned = view_of(false, of_planned, in_planned, out_planned, attrs);
  const galley_node_view placed = view_of(true, of_placed, in_placed, out_placed, attrs);
  const galley_node_view *const planned_list[] = {&planned}, *const placed_list[] = {&placed};
  const TargetView view(target);
  const Caller caller = caller_of(&kernel, kernel.name);
  auto plan = new_struct<galley_kernel_plan>();
  KernelRun run;
  TRY_STATUS(call_plugin(caller, std::string("query of kernel '") + kernel.name + "'", [&](galley_error* error) {
    const galley_status status = kernel.query(kernel.self, planned_list, 1, view.get(), &plan, error);
    if (status != GALLEY_UNSUPPORTED && status != GALLEY_INVALID) return status;
    run.refused = error->text[0] ? error->text : "it does not say why";
    return GALLEY_OK;
  }));
  if (!run.refused.empty()) return run;
  if (plan.workspace_bytes < 0 || plan.constants_bytes < 0)
    return plugin_error(std::string("kernel '") + kernel.name + "' asks for fewer than no bytes");
  run.varies = plan.flags & GALLEY_PLAN_VARIES;
  const Room workspace(plan.workspace_bytes, place), constants(plan.constants_bytes, place);
  auto setup = new_struct<galley_kernel_setup>();
  setup.target = view.get();
  setup.workspace = plan.workspace_bytes ? workspace.data() : nullptr;
  setup.workspace_bytes = plan.workspace_bytes;
  setup.constants = plan.constants_bytes ? constants.data() : nullptr;
  setup.constants_bytes = plan.constants_bytes;
  void* state = nullptr;
  TRY_STATUS(call_plugin(
      caller, "prepare", [&](galley_error* error) { return kernel.prepare(kernel.self, placed_list, 1, &setup, &state, error); },
      Phase::Run));
  const Status ran = call_plugin(
      caller, "enqueue", [&](galley_error* error) { return kernel.enqueue(state, nullptr, error); }, Phase::Run);
  (void)call_plugin(caller, "release", [&](galley_error*) {
    kernel.release(state);
    return GALLEY_OK;
  });
  TRY_STATUS(ran);
  size_t at = 0;
  for (const Values* operands : {&node.inputs, &outputs})
    for (size_t i = 0; i < operands->size(); ++i) {
      const auto& n = (*operands)[i];
      const std::byte* const address = addresses[at++];
      const bool input = operands == &node.inputs;
      (input ? run.inputs : run.outputs).push_back(n ? std::optional(taken(*n, address)) : std::nullopt);
      if (n && (!input || updates_input(node.op, i))) run.bytes.emplace_back(address, address + size_of(*n));
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
    const galley_operand_rule* rule = output ? output_rule(node.op, k) : input_rule(node.op, k);
    out = {worst.share, std::string(output ? "output " : "input ") + std::to_string(k) + " ('" + (rule ? rule->name : "") + "')", worst};
  };
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (node.inputs[i] && updates_input(node.op, i)) hold(i, false);
  for (size_t k = 0; k < outputs.size(); ++k)
    if (outputs[k]) hold(k, true);
  return out;
}

}  // namespace galley
