#include "host/passes/lower.hpp"

#include <algorithm>

#include "galley/format.h"
#include "galley/op.h"
#include "host/plugins/library.hpp"

namespace galley {
namespace {

/// For Read and Write: large enough for fast I/O, small enough not to matter.
constexpr int64_t staging_bytes = 1 << 20;

Owner owner_of(uint32_t kind) {
  switch (kind) {
    case GALLEY_KIND_PARAMETER: return Owner::Weights;
    case GALLEY_KIND_STATE: return Owner::States;
    case GALLEY_KIND_GRADIENT: return Owner::Gradients;
    case GALLEY_KIND_INPUT:
    case GALLEY_KIND_SCALAR:
    case GALLEY_KIND_CONSTANT: return Owner::Data;
    default: return Owner::Activations;
  }
}

Operand all_of(const ProgramTensor& t, TensorId id) {
  Operand out;
  out.tensor = id;
  out.shape = t.shape;
  out.dtype = t.dtype;
  return out;
}

}  // namespace

TensorId Lowering::add(ProgramTensor tensor) {
  tensor.bytes = elements(tensor.shape) * galley_dtype_bytes(tensor.dtype);
  program.tensors.push_back(std::move(tensor));
  return static_cast<TensorId>(program.tensors.size() - 1);
}

Result<uint32_t> Lowering::memory_of(const GraphTensor& t) const {
  if (t.placement.empty()) return 0u;
  for (uint32_t i = 0; i < target_.memories.size(); ++i)
    if (target_.memories[i].name == t.placement) return i;
  return recipe_error("'" + t.name + "': no memory class '" + t.placement + "'");
}

Status Lowering::begin(int64_t micro_batches) {
  program.rows = graph_.rows();
  program.length = graph_.length();
  program.micro_batches = micro_batches;
  for (galley_tensor id = 1; id <= graph_.tensor_count(); ++id) {
    const GraphTensor& t = graph_.tensor(id);
    if (t.kind == GALLEY_KIND_TRANSIENT || t.slice_of) continue;
    const uint32_t memory = TRY(memory_of(t));
    const Life life = t.kind == GALLEY_KIND_GRADIENT ? Life::Window : Life::Run;
    if (t.storage.empty()) {
      components_[id] = {add({t.name, t.dtype, t.shape, 0, memory, owner_of(t.kind), life, who(t.use)})};
      continue;
    }
    const galley_format* format = provided_.format(t.storage);
    galley_component parts[GALLEY_MAX_COMPONENTS];
    galley_component* pointers[GALLEY_MAX_COMPONENTS];
    for (size_t i = 0; i < GALLEY_MAX_COMPONENTS; ++i) {
      parts[i] = {sizeof(galley_component), 1, "", 0, 0, {}, 0};
      pointers[i] = &parts[i];
    }
    uint32_t n = 0;
    galley_error error = GALLEY_ERROR_INIT;
    const auto attrs = t.storage_attrs.view();
    if (format->components(t.shape.data(), static_cast<uint32_t>(t.shape.size()), attrs.data(), static_cast<uint32_t>(attrs.size()),
                           pointers, &n, &error) != GALLEY_OK)
      return recipe_error("format '" + t.storage + "' cannot store '" + t.name + "': " + error.text);
    if (n == 0 || n > GALLEY_MAX_COMPONENTS)
      return plugin_error("format '" + t.storage + "' makes " + std::to_string(n) + " components of '" + t.name + "'");
    for (uint32_t i = 0; i < n; ++i)
      if (!parts[i].suffix || parts[i].rank > GALLEY_MAX_RANK || !galley_dtype_bytes(parts[i].dtype) || parts[i].numbers < 0 ||
          std::any_of(parts[i].extents, parts[i].extents + parts[i].rank, [](int64_t extent) { return extent < 0; }))
        return plugin_error("format '" + t.storage + "' of plugin '" + plugin_of(format) + "': component " + std::to_string(i + 1) +
                            " of '" + t.name + "' has no suffix, or a shape or dtype that makes no sense");
    for (uint32_t i = 0; i < n; ++i)
      components_[id].push_back(add({t.name + parts[i].suffix, parts[i].dtype, Shape(parts[i].extents, parts[i].extents + parts[i].rank), 0,
                                     memory, owner_of(t.kind), life, who(t.use)}));
  }
  program.scalars = stored(graph_.scalars);
  program.staging = add({"staging", GALLEY_U8, {staging_bytes}, 0, 0, Owner::Data, Life::Run, ""});
  if (options_.window_bytes)
    program.window = add({"window buffers", GALLEY_U8, {options_.window_bytes(micro_batches)}, 0, 0, Owner::Data, Life::Run, ""});
  if (options_.corpus_bytes > 0)
    program.corpus = add({"data in memory", GALLEY_U8, {options_.corpus_bytes}, 0, 0, Owner::Data, Life::Run, ""});
  return ok();
}

bool Lowering::plain(galley_tensor id) const {
  const GraphTensor& t = graph_.tensor(id);
  return t.storage.empty() && t.placement.empty();
}

Result<Lowering::Slot> Lowering::slot(galley_tensor id) {
  const GraphTensor& t = graph_.tensor(id);
  if (t.slice_of) return Slot{components_.at(t.slice_of).front(), t.slice_offset};
  if (t.kind != GALLEY_KIND_TRANSIENT) return Slot{components_.at(id).front(), 0};
  const auto [it, fresh] = local_.try_emplace(id, no_tensor);
  if (fresh) {
    const Owner owner = saved_.contains(id) ? Owner::Saved : Owner::Activations;
    it->second = add({t.name, t.dtype, t.shape, 0, 0, owner, outlives_.contains(id) ? Life::Run : Life::Segment, who(t.use)});
  }
  return Slot{it->second, 0};
}

Result<Operand> Lowering::operand(const Ref& ref, const galley_operand_rule* rule) {
  const GraphTensor& t = graph_.tensor(ref.tensor);
  const Slot s = TRY(slot(ref.tensor));
  Operand out;
  out.tensor = s.tensor;
  out.offset = s.offset;
  out.dtype = t.dtype;
  out.shape = t.shape;
  if (ref.rows >= 0) {
    const bool one_a_row = (rule && rule->flags & GALLEY_OPERAND_SAME_ROWS) || t.shape.empty();
    const int64_t columns = one_a_row ? 1 : t.shape.back();
    out.offset += ref.row * columns * galley_dtype_bytes(t.dtype);
    out.shape = one_a_row ? Shape{ref.rows} : Shape{ref.rows, columns};
  }
  return out;
}

Result<Operand> Lowering::locate(galley_tensor t) { return operand({t, 0, -1}, nullptr); }

Operand Lowering::temporary(const std::string& name, uint32_t dtype, const Shape& shape, Owner owner, int use) {
  const TensorId id = add({name, dtype, shape, 0, 0, owner, Life::Segment, who(use)});
  return all_of(program.tensors[static_cast<size_t>(id)], id);
}

Status Lowering::copy(const Operand& from, const Operand& to) {
  const uint32_t queue = target_.queues > 1 ? 1 : 0;
  const auto sync = [&](Action action, uint32_t on, uint32_t event) {
    Instruction i;
    i.action = action;
    i.name = action == Action::Record ? "record" : "wait";
    i.queue = on;
    i.event = event;
    code().code.push_back(std::move(i));
  };
  // The copy begins after all that was computed before it, and what is computed next waits for it.
  const uint32_t before = ++events_, after = ++events_;
  sync(Action::Record, 0, before);
  sync(Action::Wait, queue, before);
  Instruction i;
  i.action = Action::Copy;
  i.name = "copy of " + program.tensors[static_cast<size_t>(from.tensor)].name;
  i.inputs = {with_access(from, GALLEY_READ)};
  i.outputs = {with_access(to, GALLEY_WRITE)};
  i.queue = queue;
  i.event = after;
  code().code.push_back(std::move(i));
  sync(Action::Wait, 0, after);
  return ok();
}

/// A tensor's components in the computing class; copied there where they lie elsewhere and are to be read.
Result<std::vector<Operand>> Lowering::stage(galley_tensor id, bool read) {
  std::vector<Operand> parts;
  for (const TensorId c : components_.at(id)) {
    const ProgramTensor part = program.tensors[static_cast<size_t>(c)];
    Operand here = all_of(part, c);
    if (part.memory != 0) {
      Operand local = temporary("staged " + part.name, part.dtype, part.shape, Owner::Workspace, graph_.tensor(id).use);
      if (read) TRY_STATUS(copy(here, local));
      here = local;
    }
    parts.push_back(here);
  }
  return parts;
}

/// An operand that holds the tensor's numbers in its own dtype.
Result<Operand> Lowering::numbers_of(galley_tensor id, const std::vector<Operand>& parts, bool read) {
  const GraphTensor& t = graph_.tensor(id);
  if (t.storage.empty()) return parts.front();
  Operand numbers = temporary("unpacked " + t.name, t.dtype, t.shape, Owner::Workspace, t.use);
  if (read) {
    AttrList attrs = t.storage_attrs;
    attrs.set("dtype", static_cast<int64_t>(t.dtype));
    TRY_STATUS(emit_op(provided_.format(t.storage)->unpack_op, "unpack " + t.name, parts, {numbers}, attrs));
  }
  return numbers;
}

Result<Operand> Lowering::read(galley_tensor id) {
  const std::vector<Operand> parts = TRY(stage(id, true));
  return numbers_of(id, parts, true);
}

Status Lowering::pack(galley_tensor id, const Operand& value, const std::vector<Operand>& parts) {
  const GraphTensor& t = graph_.tensor(id);
  if (t.storage.empty()) return ok();
  return emit_op(provided_.format(t.storage)->pack_op, "pack " + t.name, {value}, parts, t.storage_attrs);
}

/// The way back after an update or while loading.
Status Lowering::put_back(galley_tensor id, const std::vector<Operand>& parts) {
  const auto& components = components_.at(id);
  for (size_t i = 0; i < components.size(); ++i) {
    const ProgramTensor part = program.tensors[static_cast<size_t>(components[i])];
    if (part.memory != 0) TRY_STATUS(copy(parts[i], all_of(part, components[i])));
  }
  return ok();
}

Status Lowering::emit_op(const std::string& op_name, const std::string& name, std::vector<Operand> inputs, std::vector<Operand> outputs,
                         AttrList attrs) {
  Instruction i;
  i.op = provided_.op(op_name);
  if (!i.op) return plugin_error("no plugin provides the op '" + op_name + "' that '" + name + "' needs");
  i.name = name;
  for (size_t k = 0; k < inputs.size(); ++k) {
    const galley_operand_rule* rule = input_rule(i.op, k);
    i.inputs.push_back(with_access(std::move(inputs[k]), rule && rule->flags & GALLEY_OPERAND_INOUT ? GALLEY_READ_WRITE : GALLEY_READ));
  }
  for (Operand& o : outputs) i.outputs.push_back(with_access(std::move(o), GALLEY_WRITE));
  i.attrs = std::move(attrs);
  TRY_STATUS(bind(i));
  code().code.push_back(std::move(i));
  return ok();
}

Status Lowering::emit(const Item& item, size_t index, const std::map<galley_tensor, size_t>& last_use) {
  const GraphNode& node = *item.node;
  Instruction i;
  i.name = node.name;
  i.strategy = who(node.use);
  i.op = node.op;
  i.attrs = node.attrs;
  i.flags = item.training ? GALLEY_NODE_TRAINING : 0;
  i.first_row = item.first_row;
  i.recomputed = item.recomputed;
  std::vector<Stored> stored;
  for (size_t k = 0; k < item.inputs.size(); ++k) {
    const Ref& r = item.inputs[k];
    if (!r.tensor) {
      i.inputs.emplace_back();
      continue;
    }
    const galley_operand_rule* rule = input_rule(node.op, k);
    const bool inout = rule && rule->flags & GALLEY_OPERAND_INOUT;
    if (!plain(r.tensor)) {
      std::vector<Operand> parts = TRY(stage(r.tensor, true));
      stored.push_back({k, r.tensor, inout, std::move(parts)});
      i.inputs.emplace_back();
      continue;
    }
    i.inputs.push_back(with_access(TRY(operand(r, rule)), inout ? GALLEY_READ_WRITE : GALLEY_READ));
  }
  for (size_t k = 0; k < item.outputs.size(); ++k) {
    const Ref& r = item.outputs[k];
    if (!r.tensor) {
      i.outputs.emplace_back();
      continue;
    }
    const galley_operand_rule* rule = output_rule(node.op, k);
    const bool adds = item.accumulate >> k & 1;
    // Take over the buffer of an input that nobody reads any more.
    const GraphTensor& t = graph_.tensor(r.tensor);
    const int32_t from = rule ? rule->alias : -1;
    if (from >= 0 && static_cast<size_t>(from) < item.inputs.size() && !adds && r.rows < 0 && t.kind == GALLEY_KIND_TRANSIENT &&
        !local_.contains(r.tensor) && !outlives_.contains(r.tensor)) {
      const Ref& in = item.inputs[static_cast<size_t>(from)];
      const bool once =
          in.tensor && std::count_if(item.inputs.begin(), item.inputs.end(), [&](const Ref& x) { return x.tensor == in.tensor; }) == 1;
      if (once && in.rows < 0 && graph_.tensor(in.tensor).kind == GALLEY_KIND_TRANSIENT && !outlives_.contains(in.tensor) &&
          graph_.tensor(in.tensor).bytes() == t.bytes() && last_use.at(in.tensor) == index && local_.contains(in.tensor))
        local_[r.tensor] = local_.at(in.tensor);
    }
    Operand o = TRY(operand(r, rule));
    o.access = o.later = adds ? GALLEY_ACCUMULATE : GALLEY_WRITE;
    if (t.kind == GALLEY_KIND_GRADIENT && kind_ == SegmentKind::Micro && program.micro_batches > 1) o.later = GALLEY_ACCUMULATE;
    if (o.later == GALLEY_ACCUMULATE && !(rule->flags & GALLEY_OPERAND_ACCUMULATES))
      return plugin_error("op '" + std::string(node.op->name) + "' of '" + node.name + "' cannot add into '" + t.name + "', which it must");
    i.outputs.push_back(std::move(o));
  }
  const galley_cost cost = TRY(item_cost(graph_, item));
  i.flops = cost.flops;
  if (kind_ == SegmentKind::Micro && item.recomputed) program.recomputed_flops += cost.flops;
  if (!TRY(as_stored(&i, stored))) {
    for (const Stored& s : stored)
      i.inputs[s.input] = with_access(TRY(numbers_of(s.tensor, s.parts, true)), s.updated ? GALLEY_READ_WRITE : GALLEY_READ);
    TRY_STATUS(bind(i));
  }
  code().code.push_back(i);
  for (const Stored& s : stored) {
    if (!s.updated) continue;
    if (!i.components) TRY_STATUS(pack(s.tensor, i.inputs[s.input], s.parts));
    TRY_STATUS(put_back(s.tensor, s.parts));
  }
  return ok();
}

Status Lowering::keep(galley_tensor t) {
  outlives_.insert(t);
  return ok();
}

Status Lowering::sequence(SegmentKind kind, const Sequence& sequence) {
  kind_ = kind;
  local_.clear();
  saved_ = {sequence.saved.begin(), sequence.saved.end()};
  std::map<galley_tensor, size_t> last_use;
  for (size_t k = 0; k < sequence.items.size(); ++k)
    for (const auto* list : {&sequence.items[k].inputs, &sequence.items[k].outputs})
      for (const Ref& r : *list) last_use[r.tensor] = k;
  for (size_t k = 0; k < sequence.items.size(); ++k) TRY_STATUS(emit(sequence.items[k], k, last_use));
  return ok();
}

Status Lowering::load() {
  kind_ = SegmentKind::Load;
  local_.clear();
  // In the order of making: an initializer's inputs were made before its tensor.
  for (galley_tensor id = 1; id <= graph_.tensor_count(); ++id) {
    const GraphTensor& t = graph_.tensor(id);
    if (t.slice_of || (t.kind != GALLEY_KIND_PARAMETER && t.kind != GALLEY_KIND_STATE && t.kind != GALLEY_KIND_CONSTANT)) continue;
    const std::vector<Operand> parts = TRY(stage(id, false));
    const Operand value = TRY(numbers_of(id, parts, false));
    if (!t.source.empty()) {
      Instruction i;
      i.action = Action::Read;
      i.name = "read " + t.name;
      i.outputs = {with_access(value, GALLEY_WRITE),
                   with_access(all_of(program.tensors[static_cast<size_t>(program.staging)], program.staging), GALLEY_WRITE)};
      i.file = t.source;
      i.entry = t.source_name.empty() ? t.name : t.source_name;
      i.aliases = t.source_aliases;
      i.hint = t.source_hint;
      code().code.push_back(std::move(i));
    } else {
      AttrList attrs = t.attrs;
      std::string op = t.initializer;
      if (op.empty()) {
        op = "fill";
        attrs.set("value", 0.0);
      }
      std::vector<Operand> inputs;
      for (const galley_tensor in : t.initializer_inputs) inputs.push_back(TRY(read(in)));
      if (inputs.empty()) {
        attrs.set("seed", static_cast<int64_t>(options_.seed));
        attrs.set("stream", t.name);
      }
      TRY_STATUS(emit_op(op, "init " + t.name, std::move(inputs), {value}, std::move(attrs)));
    }
    TRY_STATUS(pack(id, value, parts));
    TRY_STATUS(put_back(id, parts));
  }
  return ok();
}

Status Lowering::export_tensors() {
  kind_ = SegmentKind::Export;
  local_.clear();
  std::map<galley_tensor, galley_tensor> values;
  for (const ExportedValue& e : graph_.exported) values[e.parameter] = e.value;
  std::set<galley_node> done;
  for (galley_tensor id = 1; id <= graph_.tensor_count(); ++id) {
    const GraphTensor& t = graph_.tensor(id);
    if (!t.parameter_kind() || t.slice_of) continue;
    if (t.file.empty() ? graph_.export_model == GALLEY_EXPORT_OWN : graph_.export_model == GALLEY_EXPORT_MODEL) continue;
    Operand value;
    if (const auto it = values.find(id); it != values.end()) {
      std::vector<galley_node> order, pending = {graph_.tensor(it->second).producer};
      while (!pending.empty()) {  // the nodes that this value needs and that have not run
        const galley_node n = pending.back();
        pending.pop_back();
        if (!n || graph_.node(n).section != Section::Export || !done.insert(n).second) continue;
        order.push_back(n);
        for (const galley_tensor in : graph_.node(n).inputs)
          if (in) pending.push_back(graph_.tensor(in).producer);
      }
      std::sort(order.begin(), order.end());
      const Sequence nodes = schedule_plain(graph_, order);
      std::map<galley_tensor, size_t> last_use;
      for (size_t k = 0; k < nodes.items.size(); ++k)
        for (const auto* list : {&nodes.items[k].inputs, &nodes.items[k].outputs})
          for (const Ref& r : *list) last_use[r.tensor] = k;
      last_use[it->second] = SIZE_MAX;
      for (size_t k = 0; k < nodes.items.size(); ++k) TRY_STATUS(emit(nodes.items[k], k, last_use));
      value = TRY(locate(it->second));
    } else if (plain(id)) {
      value = TRY(locate(id));
    } else {
      value = TRY(read(id));
    }
    Instruction i;
    i.action = Action::Write;
    i.name = "write " + t.name;
    i.inputs = {with_access(value, GALLEY_READ)};
    i.file = t.file.empty() ? "model/model.safetensors" : t.file;
    i.entry = t.file_name.empty() ? t.name : t.file_name;
    code().code.push_back(std::move(i));
  }
  return ok();
}

}  // namespace galley
