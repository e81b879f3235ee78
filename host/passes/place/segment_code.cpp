#include "host/passes/place/segment_code.hpp"

#include <algorithm>
#include <deque>

#include "galley/op.h"
#include "host/passes/copy.hpp"
#include "host/passes/place/homes.hpp"
#include "host/plugins/abi.hpp"
#include "host/plugins/attributes.hpp"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

/// Kernels go by the shapes and dtypes of an instruction's operands, memory by those of its tensors: the op's rule has to give its outputs
/// the same ones. Returns the bytes that an exchange sends.
Result<double> check_shapes(const Compilation& c, const galley_op* op, const std::string& name, const std::vector<Operand>& inputs,
                            const std::vector<Operand>& outputs, const AttrList& attrs) {
  const std::string who = "'" + name + "' (op '" + op->name + "' of plugin '" + caller_of(op, op->name).plugin + "') ";
  if (!inputs.empty() && !input_rule(op, inputs.size() - 1))
    return plugin_error(who + "is given " + std::to_string(inputs.size()) + " inputs; the op takes " + std::to_string(op->n_inputs));
  size_t least = op->n_outputs;  // those after may be left out: a format has a component less with other options
  while (least > 0 && op->outputs[least - 1]->flags & GALLEY_OPERAND_OPTIONAL) --least;
  if (outputs.size() > op->n_outputs || outputs.size() < least)
    return plugin_error(who + "is to write " + std::to_string(outputs.size()) + " outputs; the op has " + std::to_string(op->n_outputs));
  std::deque<GraphTensor> described;
  const auto describe = [&](const std::vector<Operand>& operands) {
    std::vector<const GraphTensor*> out;
    for (const Operand& o : operands) {
      GraphTensor& t = described.emplace_back();
      t.name = c.program.tensors[static_cast<size_t>(o.tensor)].name;
      t.dtype = o.dtype;
      t.shape = o.shape;
      out.push_back(&t);
    }
    return out;
  };
  const std::vector<const GraphTensor*> in = describe(inputs), out = describe(outputs);
  if (const std::string problem = attrs_problem(*op, attrs.view()); !problem.empty())
    return plugin_error(who + "is not what its op takes: " + problem);
  const NodeDescription description(op, name, in, attrs, out, {}, c.graph.length());
  const Result<std::vector<galley_shape>> shapes = infer_shapes(op, description.view());
  if (!shapes) return plugin_error(who + "is not what its op takes: " + shapes.error().cause, shapes.error().hint);
  for (size_t k = 0; k < outputs.size(); ++k)
    if (const std::string problem = output_problem(*op, k, (*shapes)[k], *out[k]); !problem.empty()) return plugin_error(who + problem);
  for (size_t k = outputs.size(); k < op->n_outputs; ++k)
    if ((*shapes)[k].dtype)
      return plugin_error(who + "is to write " + std::to_string(outputs.size()) + " outputs; of these inputs the op makes output " +
                          std::to_string(k + 1) + ", '" + op->outputs[k]->name + "', too");
  auto cost = new_struct<galley_cost>();
  if (op->flags & GALLEY_OP_EXCHANGE && op->cost)
    TRY_STATUS(call_plugin(caller_of(op, op->name), "cost of '" + name + "'",
                           [&](galley_error* error) { return op->cost(op->self, description.view(), &cost, error); }));
  return cost.link_bytes;
}

}  // namespace

SegmentCode::SegmentCode(Compilation& c, SegmentKind kind) : c_(c), kind_(kind) {
  for (const Segment& segment : c.program.segments)
    for (const Instruction& i : segment.code) events_ = std::max(events_, i.event);
}

Instruction& SegmentCode::add(Instruction instruction) { return code().emplace_back(std::move(instruction)); }

Status SegmentCode::op(const galley_op* op, const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs,
                       AttrList attrs, When when) {
  const double link_bytes = TRY(check_shapes(c_, op, name, inputs, outputs, attrs));
  for (size_t k = 0; k < inputs.size(); ++k) inputs[k].access = inputs[k].later = updates_input(op, k) ? GALLEY_READ_WRITE : GALLEY_READ;
  for (Operand& o : outputs) o.access = o.later = GALLEY_WRITE;
  outputs.resize(op->n_outputs);
  Instruction& made = add(launch_of({name, op, std::move(attrs)}, std::move(inputs), std::move(outputs)));
  made.when = when;
  made.launch()->link_bytes = link_bytes;
  return ok();
}

void SegmentCode::copy(const Operand& from, const Operand& to, When when) {
  const bool in = tensor(to.tensor).memory == 0;
  const uint32_t queue = c_.target.queue_for(in ? Queue::In : Queue::Out);
  copy_in_order(queue, &events_, [&](Action action, uint32_t on, uint32_t event) {
    if (action != Action::Copy) return void(add(sync(action, on, event)));
    add(copy_between(c_.program.tensors, from, to, on, event)).when = when;
  });
}

Operand SegmentCode::temporary(const std::string& name, uint32_t dtype, const Shape& shape, int use, Owner owner) {
  return all_of(add_tensor(c_.program, {name, dtype, shape, 0, 0, owner, Life::Segment, label(c_.strategies, use)}));
}

Operand SegmentCode::all_of(TensorId id) const { return galley::all_of(c_.program.tensors, id); }

}  // namespace galley
