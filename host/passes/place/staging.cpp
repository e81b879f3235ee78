#include "host/passes/place/staging.hpp"

#include "galley/format.h"
#include "galley/op.h"
#include "host/passes/place/exchanges.hpp"
#include "host/plugins/library.hpp"

namespace galley {

Result<std::vector<Operand>> Staging::whole(galley_tensor id, const Cut& cut, For what) {
  const GraphTensor& of = homes_.tensors()[homes_.base(id)];
  const std::optional<uint32_t> seen = homes_.tensors()[id].storage.component;
  const std::vector<Component>& described = homes_.described(of.id);
  std::vector<Operand> components = TRY(homes_.operands(id, {}));
  for (size_t k = 0; k < components.size(); ++k) {
    if (what == For::Reading && seen && *seen != k) {
      components[k] = {};
      continue;
    }
    const ProgramTensor home = code_.tensor(components[k].tensor);
    if (home.memory != 0 && (what == For::Reading || !home.is_part())) {
      const Operand local = code_.temporary("staged " + home.name, home.dtype, home.shape, of.use);
      if (what == For::Reading) code_.copy(components[k], local);
      components[k] = local;
    }
    if (!home.is_part()) continue;
    const Operand all = code_.temporary("whole " + home.name, home.dtype, home.whole, of.use);
    if (what == For::Reading) TRY_STATUS(gather(c_, code_, cut, described[k], components[k], all));
    components[k] = all;
  }
  return components;
}

Result<std::vector<Operand>> Staging::bring(galley_tensor id, const TensorPiece& piece, For what) {
  if (const Cut* cut = homes_.cut(id); cut && piece.all()) return whole(id, *cut, what);
  std::vector<Operand> components = TRY(homes_.operands(id, piece));
  for (Operand& component : components) {
    if (code_.tensor(component.tensor).memory == 0) continue;
    const int use = homes_.tensors()[homes_.base(id)].use;
    const Operand local = code_.temporary("staged " + code_.tensor(component.tensor).name, component.dtype, component.shape, use);
    if (what == For::Reading) code_.copy(component, local);
    component = local;
  }
  return components;
}

Status Staging::format_op(const GraphTensor& t, const char* op_name, const std::string& name, std::vector<Operand> from,
                          std::vector<Operand> to, AttrList attrs) {
  Status made = code_.op(TRY(op_named(c_.plugins, op_name, name)), name, std::move(from), std::move(to), std::move(attrs));
  if (made) return made;
  return plugin_error("format '" + t.storage.format + "' of plugin '" + c_.plugins.format(t.storage.format).plugin->manifest.id +
                          "': " + made.error().cause,
                      "the format's components and the shape rules of its ops have to say the same");
}

Result<Operand> Staging::numbers(galley_tensor id, const TensorPiece& piece, const std::vector<Operand>& components, For what) {
  const GraphTensor &t = homes_.tensors()[id], &of = homes_.tensors()[homes_.base(id)];
  if (!homes_.unpacks(id)) return components[t.storage.component.value_or(0)];
  const Operand out = code_.temporary((of.storage.format.empty() ? "cast " : "unpacked ") + of.name, t.dtype, piece.shape(t.shape), of.use);
  if (what == For::Writing) return out;
  AttrList attrs = of.storage.attrs;
  if (of.storage.format.empty()) {
    attrs.set("dtype", dtype_text(t.dtype));
    TRY_STATUS(code_.op(c_.roles.copy, "cast " + of.name, components, {out}, attrs));
    return out;
  }
  const char* unpack = c_.plugins.format(of.storage.format).table->unpack_op;
  attrs.set("dtype", dtype_text(t.dtype));
  const Status made = format_op(of, unpack, "unpack " + of.name, components, {out}, attrs);
  if (made) return out;
  if (t.dtype == of.dtype) return made.error();
  // An op that unpacks in the tensor's own dtype only: what is narrower, the host makes of that.
  const Operand own = code_.temporary("unpacked " + of.name + " in " + dtype_text(of.dtype), of.dtype, piece.shape(t.shape), of.use);
  attrs.set("dtype", dtype_text(of.dtype));
  TRY_STATUS(format_op(of, unpack, "unpack " + of.name, components, {own}, attrs));
  AttrList cast;
  cast.set("dtype", dtype_text(t.dtype));
  TRY_STATUS(code_.op(c_.roles.copy, "cast " + of.name, {own}, {out}, cast));
  return out;
}

Result<Operand> Staging::read(galley_tensor id) {
  const std::vector<Operand> components = TRY(bring(id, {}, For::Reading));
  return numbers(id, {}, components, For::Reading);
}

Status Staging::pack(galley_tensor id, const TensorPiece& piece, const Operand& numbers, const std::vector<Operand>& components) {
  const GraphTensor& t = homes_.tensors()[id];
  if (!homes_.unpacks(id)) return ok();
  const std::string name = "pack " + t.name;
  if (t.storage.format.empty()) {
    AttrList attrs;
    attrs.set("dtype", dtype_text(t.storage.kept_dtype));
    return code_.op(c_.roles.copy, name, {numbers}, components, attrs);
  }
  const galley_format& format = *c_.plugins.format(t.storage.format).table;
  if (!format.pack_op)
    return recipe_error("'" + t.name + "' is to be stored in format '" + t.storage.format +
                            "', which packs nothing, and it does not lie in its file in this format",
                        "take the file that has it so, or leave the strategy out");
  std::vector<Operand> inputs = {numbers};
  AttrList attrs = t.storage.attrs;
  // Random numbers are those of a step: what is loaded is rounded to nearest.
  const bool draws = format.flags & GALLEY_FORMAT_STOCHASTIC && code_.kind() != SegmentKind::Load;
  if (draws) {
    inputs.push_back(homes_.operand(TRY(c_.draft.scalars.get(GALLEY_SCALAR_RANDOM))));
    attrs.set("stream", name);
  }
  TRY_STATUS(format_op(t, format.pack_op, name, std::move(inputs), components, std::move(attrs)));
  if (draws && !piece.all()) code_.last().launch()->nodes[0].first_row = piece.first_row(t.shape);
  return ok();
}

Status Staging::put_back(galley_tensor id, const TensorPiece& piece, const std::vector<Operand>& components) {
  const std::vector<Operand> to = TRY(homes_.operands(id, piece));
  const Cut* const cut = piece.all() ? homes_.cut(id) : nullptr;
  for (size_t i = 0; i < to.size(); ++i) {
    const ProgramTensor& home = code_.tensor(to[i].tensor);
    Operand from = components[i];
    if (cut && home.is_part()) from = own_part(*cut, homes_.described(homes_.base(id))[i], from);
    if (!from.present()) continue;
    if (home.memory != 0) {
      code_.copy(from, to[i]);
    } else if (home.is_part() && cut) {
      from.shape = to[i].shape;
      TRY_STATUS(code_.op(c_.roles.copy, "own part of " + home.name, {from}, {to[i]}, {}));
    }
  }
  return ok();
}

}  // namespace galley
