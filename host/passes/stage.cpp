// Tensors that lie in a format, or in a memory class where nothing computes: brought where a node needs them, and back.
#include <algorithm>

#include "galley/format.h"
#include "galley/op.h"
#include "host/passes/place.hpp"

namespace galley {

Operand Placer::temporary(const std::string& name, uint32_t dtype, const Shape& shape, int use) {
  return all_of(add({name, dtype, shape, 0, 0, Owner::Workspace, Life::Segment, who(use)}));
}

/// Without a queue of its own a copy is one more step of queue 0.
void Placer::copy(const Operand& from, const Operand& to, When when) {
  const bool in = program_.tensors[static_cast<size_t>(to.tensor)].memory == 0;
  const uint32_t queue = c_.target.queue_for(in ? Queue::In : Queue::Out);
  // The copy begins after all that was computed before it, and what is computed next waits for it.
  const uint32_t before = queue ? ++events_ : 0, after = queue ? ++events_ : 0;
  if (queue) {
    code().push_back(sync(Action::Record, 0, before));
    code().push_back(sync(Action::Wait, queue, before));
  }
  Instruction& made = code().emplace_back(copy_between(program_.tensors, from, to, queue, after));
  if (when == When::LaterMicroBatches) made.inputs[0].access = made.outputs[0].access = no_access;
  if (queue) code().push_back(sync(Action::Wait, 0, after));
}

/// Where a tensor's components lie, or those elements of them that stand for a range of its numbers.
Result<std::vector<Operand>> Placer::homes(galley_tensor id, const Range& range) const {
  const GraphTensor& of = tensors_[base(id)];
  std::vector<Operand> out;
  for (const TensorId c : components_.at(of.id)) out.push_back(all_of(c));
  if (range.all()) return out;
  if (of.storage.empty()) {
    out.front() = range_of(out.front(), range);
    return out;
  }
  const std::vector<Component> pieces = TRY(components_of(of, range.shape(of.shape)));
  for (size_t k = 0; k < out.size(); ++k) {
    out[k].offset = range.first / pieces[k].numbers * galley_dtype_bytes(out[k].dtype);
    out[k].shape = pieces[k].tensor.shape;
  }
  return out;
}

/// A tensor's components in the computing class; copied there where they lie elsewhere and are to be read.
Result<std::vector<Operand>> Placer::stage(galley_tensor id, const Range& range, bool read) {
  std::vector<Operand> components = TRY(homes(id, range));
  for (Operand& component : components) {
    const ProgramTensor& home = program_.tensors[static_cast<size_t>(component.tensor)];
    if (home.memory == 0) continue;
    const Operand local = temporary("staged " + home.name, component.dtype, component.shape, tensors_[base(id)].use);
    if (read) copy(component, local);
    component = local;
  }
  return components;
}

/// Whether the tensor's bytes are not its numbers in its dtype.
bool Placer::unpacks(galley_tensor id) const {
  const GraphTensor &t = tensors_[id], &of = tensors_[base(id)];
  if (of.storage.empty()) return t.dtype != (of.kept_dtype ? of.kept_dtype : of.dtype);
  return !(c_.plugins.format(of.storage).table->flags & GALLEY_FORMAT_PLAIN) ||
         program_.tensors[static_cast<size_t>(components_.at(of.id).front())].dtype != t.dtype;
}

/// The op of a tensor's format that packs or unpacks it.
Status Placer::emit_format_op(const GraphTensor& t, const char* op_name, const std::string& name, std::vector<Operand> from,
                              std::vector<Operand> to, AttrList attrs) {
  Status made = emit_op(TRY(op(op_name, name)), name, std::move(from), std::move(to), std::move(attrs));
  if (made) return made;
  return plugin_error(
      "format '" + t.storage + "' of plugin '" + c_.plugins.format(t.storage).plugin->manifest.id + "': " + made.error().cause,
      "the format's components and the shape rules of its ops have to say the same");
}

/// An operand that holds the tensor's numbers in its own dtype.
Result<Operand> Placer::numbers_of(galley_tensor id, const Range& range, const std::vector<Operand>& components, bool read) {
  const GraphTensor &t = tensors_[id], &of = tensors_[base(id)];
  if (!unpacks(id)) return components.front();
  Operand numbers = temporary((of.storage.empty() ? "cast " : "unpacked ") + of.name, t.dtype, range.shape(t.shape), of.use);
  if (!read) return numbers;
  AttrList attrs = of.storage_attrs;
  if (of.storage.empty()) {
    attrs.set("dtype", dtype_text(t.dtype));
    TRY_STATUS(emit_op(c_.roles.copy, "cast " + of.name, components, {numbers}, attrs));
    return numbers;
  }
  attrs.set("dtype", static_cast<int64_t>(t.dtype));
  TRY_STATUS(emit_format_op(of, c_.plugins.format(of.storage).table->unpack_op, "unpack " + of.name, components, {numbers}, attrs));
  return numbers;
}

Result<Operand> Placer::read(galley_tensor id) {
  const std::vector<Operand> components = TRY(stage(id, {}, true));
  return numbers_of(id, {}, components, true);
}

Status Placer::pack(galley_tensor id, const Range& range, const Operand& value, const std::vector<Operand>& components) {
  const GraphTensor& t = graph_.tensor(id);
  if (!unpacks(id)) return ok();
  const std::string name = "pack " + t.name;
  if (t.storage.empty()) {
    AttrList attrs;
    attrs.set("dtype", dtype_text(t.kept_dtype));
    return emit_op(c_.roles.copy, name, {value}, components, attrs);
  }
  const galley_format& format = *c_.plugins.format(t.storage).table;
  std::vector<Operand> inputs = {value};
  AttrList attrs = t.storage_attrs;
  if (format.flags & GALLEY_FORMAT_STOCHASTIC && kind_ != SegmentKind::Load) {
    inputs.push_back(TRY(locate(TRY(c_.graph.scalar(GALLEY_SCALAR_RANDOM)))));
    attrs.set("stream", name);
  }
  const bool draws = inputs.size() > 1;
  TRY_STATUS(emit_format_op(t, format.pack_op, name, std::move(inputs), components, std::move(attrs)));
  if (draws && !range.all()) code().back().first_row = range.first_row(t.shape);
  return ok();
}

/// The way back after an update or while loading.
Status Placer::put_back(galley_tensor id, const Range& range, const std::vector<Operand>& components) {
  const std::vector<Operand> to = TRY(homes(id, range));
  for (size_t i = 0; i < to.size(); ++i)
    if (program_.tensors[static_cast<size_t>(to[i].tensor)].memory != 0) copy(components[i], to[i]);
  return ok();
}

/// Whether an operand lies in a format, and not in one that is its numbers.
bool Placer::in_format(const StagedInput& s) const { return !tensors_[base(s.tensor)].storage.empty() && unpacks(s.tensor); }

/// The instruction if it reads those operands in their formats whose bits are in `kept`: their components are further inputs.
Instruction Placer::with_formats(const Instruction& instruction, const std::vector<StagedInput>& staged, uint32_t kept) const {
  Instruction i = instruction;
  for (size_t k = 0; k < staged.size(); ++k) {
    const StagedInput& s = staged[k];
    const GraphTensor &t = tensors_[s.tensor], &of = tensors_[base(s.tensor)];
    Operand& operand = i.inputs[s.input];
    operand.shape = s.range.shape(t.shape);
    operand.dtype = t.dtype;
    operand.access = operand.later = s.updated ? GALLEY_READ_WRITE : GALLEY_READ;
    if (!(kept >> k & 1)) {
      operand.tensor = s.components.front().tensor;  // until it is known where its numbers will be
      continue;
    }
    auto format = std::make_shared<OperandFormat>();
    format->name = of.storage;
    format->attrs = of.storage_attrs;
    format->view = format->attrs.view();
    format->first = i.inputs.size();
    format->count = s.components.size();
    const uint32_t access = operand.access;
    operand.format = std::move(format);
    for (const Operand& component : s.components) i.inputs.push_back(with_access(component, access));
    i.components += s.components.size();
  }
  return i;
}

/// Chooses the operands that stay in their formats: of the sets for which there is a kernel, the one with the most numbers.
Result<std::vector<bool>> Placer::keep_formats(Instruction* instruction, const std::vector<StagedInput>& staged) {
  constexpr size_t most = 6;  // of more operands in formats, all or none
  std::vector<size_t> formats;
  for (size_t k = 0; k < staged.size(); ++k)
    if (in_format(staged[k])) formats.push_back(k);
  std::vector<std::pair<int64_t, uint32_t>> sets;  // numbers, with a minus; bits
  for (uint32_t chosen = 1; chosen < 1u << std::min(formats.size(), most); ++chosen) {
    int64_t numbers = 0;
    uint32_t kept = 0;
    for (size_t f = 0; f < formats.size(); ++f) {
      if (formats.size() <= most && !(chosen >> f & 1)) continue;
      numbers += tensors_[staged[formats[f]].tensor].count();
      kept |= 1u << formats[f];
    }
    sets.emplace_back(-numbers, kept);
  }
  std::sort(sets.begin(), sets.end());
  std::vector<bool> out(staged.size(), false);
  for (const auto& [numbers, kept] : sets) {
    Instruction i = with_formats(*instruction, staged, kept);
    if (!TRY(c_.kernels.choose(i, program_.tensors))->kernel) continue;
    *instruction = std::move(i);
    for (size_t k = 0; k < staged.size(); ++k) out[k] = kept >> k & 1;
    break;
  }
  return out;
}

}  // namespace galley
