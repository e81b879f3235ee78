#include "host/passes/compression.hpp"

#include <algorithm>

#include "galley/format.h"
#include "host/passes/copy.hpp"
#include "host/passes/place/components.hpp"
#include "host/passes/place/segment_code.hpp"
#include "host/plan/dtype.hpp"
#include "host/plan/outline.hpp"
#include "host/plan/timing.hpp"

namespace galley {

/// Emits the instructions at the end of micro, and takes them and their tensors out again.
Result<bool> Compressor::emit(const GraphTensor& t, const SavedFormat& format, bool in_f32, Compression* compression) {
  const galley_format& table = *c_.plugins.format(format.name).table;
  GraphTensor in_format = t;
  in_format.storage.format = format.name;
  in_format.storage.attrs = format.attrs;
  const Result<std::vector<Component>> components = components_of(c_.plugins, in_format, t.shape);
  if (!components) return false;

  Program& program = c_.program;
  std::vector<Instruction>& micro = program.segment(SegmentKind::Micro).code;
  const size_t first = micro.size(), first_tensor = program.tensors.size();
  const auto take_out = [&] {
    micro.erase(micro.begin() + static_cast<std::ptrdiff_t>(first), micro.end());
    program.tensors.erase(program.tensors.begin() + static_cast<std::ptrdiff_t>(first_tensor), program.tensors.end());
  };
  SegmentCode code(c_, SegmentKind::Micro);
  const Operand numbers = code.temporary(t.name, t.dtype, t.shape, t.use, Owner::Activations);
  std::vector<Operand> parts;
  for (const Component& part : *components)
    parts.push_back(code.temporary(t.name + part.suffix, part.dtype, part.shape, format.use, Owner::Saved));
  const uint32_t dtype = in_f32 ? GALLEY_F32 : t.dtype;
  const auto cast = [&](const Operand& from, const Operand& to) {
    AttrList attrs;
    attrs.set("dtype", dtype_text(to.dtype));
    return code.op(c_.roles.copy, "cast " + t.name, {from}, {to}, std::move(attrs));
  };
  const auto in_dtype = [&] { return dtype == t.dtype ? numbers : code.temporary("cast " + t.name, dtype, t.shape, format.use); };
  const Operand from = in_dtype();
  if (dtype != t.dtype) TRY_STATUS(cast(numbers, from));
  if (!code.op(TRY(op_named(c_.plugins, table.pack_op, format.name)), "pack " + t.name, {from}, parts, format.attrs).ok())
    return take_out(), false;
  const size_t unpacks = micro.size();
  const Operand to = in_dtype();
  AttrList attrs = format.attrs;
  attrs.set("dtype", dtype_text(dtype));
  if (!code.op(TRY(op_named(c_.plugins, table.unpack_op, format.name)), "unpack " + t.name, parts, {to}, std::move(attrs)).ok())
    return take_out(), false;
  if (dtype != t.dtype) TRY_STATUS(cast(to, numbers));

  std::vector<Program::Chosen> kernels;
  double seconds = 0;
  for (size_t i = first; i < micro.size(); ++i) {
    const KernelChoice& choice = *TRY(c_.kernels.choose(micro[i], program.tensors));
    if (!choice.kernel || choice.constants > 0) return take_out(), false;
    give(program, micro[i], choice);
    micro[i].strategy = label(c_.strategies, format.use);
    kernels.push_back({micro[i].launch()->op()->name, choice.kernel->name, choice.plugin->manifest.id});
    seconds += instruction_seconds(program, micro[i], c_.target);
  }
  for (size_t i = first; i < micro.size(); ++i) {
    visit_touched(micro[i], [&](TensorId& id) { id -= static_cast<TensorId>(first_tensor); });
    (i < unpacks ? compression->pack : compression->unpack).push_back(std::move(micro[i]));
  }
  compression->tensors.assign(program.tensors.begin() + static_cast<std::ptrdiff_t>(first_tensor), program.tensors.end());
  compression->components = parts.size();
  compression->kernels = std::move(kernels);
  compression->seconds = seconds;
  for (const Operand& part : parts) compression->bytes += part.bytes();
  take_out();
  return true;
}

Result<std::optional<Compression>> Compressor::of(const GraphTensor& tensor, const SavedFormat& format) {
  Compression out;
  if (!is_floating(tensor.dtype)) return std::optional<Compression>();
  if (TRY(emit(tensor, format, false, &out))) return std::optional(std::move(out));
  if (tensor.dtype != GALLEY_F32 && TRY(emit(tensor, format, true, &out))) return std::optional(std::move(out));
  return std::optional<Compression>();
}

}  // namespace galley
