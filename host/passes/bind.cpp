// Which kernel does an instruction: the best of those that the device has for its dtypes, shapes and formats.
#include <deque>

#include "galley/op.h"
#include "host/passes/lower.hpp"
#include "host/plugins/abi.hpp"

namespace galley {

/// The best kernel for an instruction, which `query` is shown with the heavier of each operand's two accesses: a kernel that cannot add is none
/// for a gradient.
const Lowering::Choice& Lowering::choose(const Instruction& i) {
  std::deque<galley_operand> operands;
  std::vector<const galley_operand*> inputs, outputs;
  inputs.reserve(
      i.inputs.size());  // it stays where it is: operands that are stored point to their components, which come behind the op's inputs
  std::string key = i.op->name;
  bool formats = false;
  const auto describe = [&](const Operand& o) -> const galley_operand* {
    if (!o.present() && !o.stored) {
      key += "|-";
      return nullptr;
    }
    const uint32_t access = std::max(o.access, o.later);
    operands.push_back(operand_view(o, o.present() ? program.tensors[static_cast<size_t>(o.tensor)].name.c_str() : o.stored->format.c_str(),
                                    nullptr, access));
    key += "|" + std::to_string(o.dtype) + "," + std::to_string(access);
    for (const int64_t extent : o.shape) key += "," + std::to_string(extent);
    if (o.stored) {
      key += "," + o.stored->format + o.stored->attrs.key();
      operands.back().components = inputs.data() + o.stored->first;
      formats = true;
    }
    return &operands.back();
  };
  for (const Operand& o : i.inputs) inputs.push_back(describe(o));
  key += ">";
  for (const Operand& o : i.outputs) outputs.push_back(describe(o));
  const auto attrs = i.attrs.view();
  for (const galley_attr* a : attrs) {
    key += std::string(";") + a->name + "=";
    const size_t bytes = a->type == GALLEY_ATTR_STRING ? a->count : a->count * 8;
    if (std::string_view(a->name) != "stream") key.append(static_cast<const char*>(a->data), bytes);
  }
  const auto [found, fresh] = bound_.try_emplace(key);
  Choice& choice = found->second;
  if (!fresh) return choice;
  galley_node_view view = {sizeof(galley_node_view),
                           1,
                           i.op->name,
                           i.name.c_str(),
                           inputs.data(),
                           outputs.data(),
                           attrs.data(),
                           static_cast<uint32_t>(inputs.size() - i.components),
                           static_cast<uint32_t>(outputs.size()),
                           static_cast<uint32_t>(attrs.size()),
                           i.flags,
                           i.first_row,
                           program.length,
                           -1};
  const galley_node_view* nodes[] = {&view};
  const TargetView target(target_);
  galley_kernel_plan plan = {};
  for (const galley_kernel* k : provided_.kernels(i.op->name, target_.device)) {
    if (formats && !(k->flags & GALLEY_KERNEL_FORMATS)) continue;
    auto offer = new_struct<galley_kernel_plan>();
    galley_error error = GALLEY_ERROR_INIT;
    const galley_status status = k->query(nodes, 1, target.get(), &offer, &error);
    if (status != GALLEY_OK) {
      choice.refusals += std::string("; ") + k->name + ": " + error.text;
      continue;
    }
    if (offer.workspace_bytes > target_.workspace_budget) {
      choice.refusals += std::string("; ") + k->name + ": needs " + std::to_string(offer.workspace_bytes) + " bytes of workspace";
      continue;
    }
    const galley_kernel* best = choice.kernel;
    const bool better =
        !best || offer.priority > plan.priority || (offer.priority == plan.priority && std::string_view(k->name) < best->name);
    if (better) {
      choice.kernel = k;
      plan = offer;
    }
  }
  choice.workspace = plan.workspace_bytes;
  return choice;
}

void Lowering::take(Instruction& i, const Choice& choice) {
  i.kernel = choice.kernel;
  if (choice.workspace > 0)
    i.workspace = add({"workspace of " + i.name, GALLEY_U8, {choice.workspace}, 0, 0, Owner::Workspace, Life::Segment, ""});
}

Status Lowering::bind(Instruction& i) {
  const Choice& choice = choose(i);
  if (!choice.kernel) {
    std::string shapes;
    for (const Operand& o : i.inputs) {
      if (!o.present()) continue;
      shapes += shapes.empty() ? "(" : ", (";
      for (size_t d = 0; d < o.shape.size(); ++d) shapes += (d ? ", " : "") + std::to_string(o.shape[d]);
      shapes += ")";
    }
    return recipe_error("no kernel of device '" + target_.device + "' (" + target_.isa + ") does op '" + i.op->name + "' of node '" +
                            i.name + "' on " + shapes + choice.refusals,
                        "see which kernels there are with `galley plugins`");
  }
  take(i, choice);
  return ok();
}

/// Binds a kernel that reads all of the node's formats as they are stored, if there is one. The components become further inputs.
Result<bool> Lowering::as_stored(Instruction* instruction, const std::vector<Stored>& stored) {
  Instruction i = *instruction;
  bool formats = false;
  for (const Stored& s : stored) {
    const GraphTensor& t = graph_.tensor(s.tensor);
    const uint32_t access = s.updated ? GALLEY_READ_WRITE : GALLEY_READ;
    if (t.storage.empty()) {
      i.inputs[s.input] = with_access(s.parts.front(), access);
      continue;
    }
    formats = true;
    auto as = std::make_shared<StoredAs>();
    as->format = t.storage;
    as->attrs = t.storage_attrs;
    as->view = as->attrs.view();
    as->first = i.inputs.size();
    as->count = s.parts.size();
    Operand& operand = i.inputs[s.input];
    operand.shape = t.shape;
    operand.dtype = t.dtype;
    operand.access = operand.later = access;
    operand.stored = std::move(as);
    for (const Operand& part : s.parts) i.inputs.push_back(with_access(part, access));
    i.components += s.parts.size();
  }
  if (!formats) return false;
  const Choice& choice = choose(i);
  if (!choice.kernel) return false;
  take(i, choice);
  *instruction = std::move(i);
  return true;
}

}  // namespace galley
