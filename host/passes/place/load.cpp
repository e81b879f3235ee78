#include "galley/op.h"
#include "host/passes/copy.hpp"
#include "host/passes/packed.hpp"
#include "host/passes/place/files.hpp"
#include "host/passes/place/staging.hpp"

namespace galley {
namespace {

using For = Staging::For;

/// Makes `value` of the tensor's initializer, or zero.
Status initialize(Compilation& c, SegmentCode& code, Staging& staging, const GraphTensor& t, const Operand& value) {
  AttrList attrs = t.initial.attrs;
  std::vector<Operand> inputs;
  for (const galley_tensor in : t.initial.inputs) inputs.push_back(TRY(staging.read(in)));
  const std::string name = "init " + t.name;
  const galley_op* from = c.roles.fill;
  if (t.initial.op.empty()) attrs.set("value", 0.0);
  else from = TRY(op_named(c.plugins, t.initial.op, name));
  if (inputs.empty()) {
    attrs.set("seed", static_cast<int64_t>(c.options.seed));
    attrs.set("stream", t.name);
  }
  Status made = code.op(from, name, std::move(inputs), {value}, std::move(attrs));
  if (made || t.use == no_use) return made;
  return plugin_error(label(c.strategies, t.use) + ": " + made.error().cause, made.error().hint);
}

/// What has no file, or a file with its numbers: these where kernels compute, then the tensor as it lies.
Status make(Compilation& c, SegmentCode& code, Staging& staging, galley_tensor id) {
  const std::vector<Operand> components = TRY(staging.bring(id, {}, For::Writing));
  const Operand value = TRY(staging.numbers(id, {}, components, For::Writing));
  TRY_STATUS(initialize(c, code, staging, c.graph.tensor(id), value));
  TRY_STATUS(staging.pack(id, {}, value, components));
  return staging.put_back(id, {}, components);
}

/// From the tensor's file: its numbers, or a component.
Instruction read_file(const Compilation& c, const SegmentCode& code, const GraphTensor& t, const Component& component, const Operand& to) {
  Instruction i;
  i.action = Action::Read;
  i.name = "read " + t.name + component.suffix;
  i.outputs = {with_access(to, GALLEY_WRITE), with_access(code.all_of(c.program.staging), GALLEY_WRITE)};
  i.file = t.source.path;
  for (const std::string& name : source_names(t)) i.aliases.push_back(name_in_file(component, name));
  i.entry = i.aliases.front();
  i.aliases.erase(i.aliases.begin());
  i.hint = t.source.hint;
  return i;
}

/// From the tensor's file, which holds its components or its numbers.
Status read(Compilation& c, const Homes& homes, SegmentCode& code, Staging& staging, PackedFiles& files, galley_tensor id) {
  const GraphTensor& t = c.graph.tensor(id);
  const std::vector<Operand> components = TRY(staging.bring(id, {}, For::Writing));
  const std::vector<Component>& described = homes.described(id);
  if (!t.storage.format.empty() && TRY(files.hold(t, described))) {
    for (size_t k = 0; k < components.size(); ++k) code.add(read_file(c, code, t, described[k], components[k]));
  } else if (t.storage.kept_dtype) {
    code.add(read_file(c, code, t, {}, components.front()));
  } else {
    const Operand value = TRY(staging.numbers(id, {}, components, For::Writing));
    code.add(read_file(c, code, t, {}, value));
    TRY_STATUS(staging.pack(id, {}, value, components));
  }
  return staging.put_back(id, {}, components);
}

}  // namespace

Status place_load(Compilation& c, const Homes& homes) {
  SegmentCode code(c, SegmentKind::Load);
  Staging staging(c, homes, code);
  PackedFiles files;
  // In the order of making: an initializer's inputs were made before its tensor.
  for (galley_tensor id = 1; id <= c.graph.tensor_count(); ++id) {
    const GraphTensor& t = c.graph.tensor(id);
    if (!lasts(t.kind) || t.slice.of || t.storage.numbers_of || t.unused) continue;
    if (t.source.path.empty()) TRY_STATUS(make(c, code, staging, id));
    else TRY_STATUS(read(c, homes, code, staging, files, id));
  }
  if (!c.steps()) return ok();
  AttrList zero;
  zero.set("value", 0.0);
  return code.op(c.roles.fill, "init step scalars", {}, {code.all_of(c.program.scalars)}, zero);
}

Status place_refresh(Compilation& c, const Homes& homes, SegmentCode& code) {
  Staging staging(c, homes, code);
  std::vector<bool> changes(c.graph.tensor_count() + 1, false);
  for (galley_tensor id = 1; id <= c.graph.tensor_count(); ++id) {
    const GraphTensor& t = c.graph.tensor(id);
    changes[id] = t.kind == GALLEY_KIND_STATE || (t.parameter_kind() && t.changes());
    if (t.kind != GALLEY_KIND_CONSTANT || t.unused) continue;
    for (const galley_tensor in : t.initial.inputs) changes[id] = changes[id] || changes[homes.base(in)];
    if (changes[id] && !t.storage.numbers_of) TRY_STATUS(make(c, code, staging, id));
  }
  return ok();
}

}  // namespace galley
