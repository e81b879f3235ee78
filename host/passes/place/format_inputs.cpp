#include "host/passes/place/format_inputs.hpp"

#include <algorithm>

#include "host/passes/copy.hpp"

namespace galley {
namespace {

/// The instruction if it reads those operands in their formats whose bits are in `kept`.
Instruction with_formats(Compilation& c, const Homes& homes, const Instruction& instruction, const std::vector<StagedInput>& staged,
                         uint32_t kept) {
  Instruction i = instruction;
  for (size_t k = 0; k < staged.size(); ++k) {
    const StagedInput& s = staged[k];
    const GraphTensor &t = homes.tensors()[s.tensor], &of = homes.tensors()[homes.base(s.tensor)];
    Operand& operand = i.inputs[s.input];
    operand.shape = s.piece.shape(t.shape);
    operand.dtype = t.dtype;
    operand.access = operand.later = s.updated ? GALLEY_READ_WRITE : GALLEY_READ;
    if (!(kept >> k & 1)) {
      operand.tensor = s.components.front().tensor;  // until it is known where its numbers will be
      continue;
    }
    auto format = std::make_shared<OperandFormat>();
    format->name = of.storage.format;
    format->attrs = of.storage.attrs;
    format->view = format->attrs.view();
    format->codec = c.kernels.codec(format->name);
    format->first = i.inputs.size();
    format->count = s.components.size();
    const uint32_t access = operand.access;
    operand.format = std::move(format);
    for (const Operand& component : s.components) i.inputs.push_back(with_access(component, access));
  }
  return i;
}

}  // namespace

Result<std::vector<bool>> keep_formats(Compilation& c, const Homes& homes, const std::vector<StagedInput>& staged,
                                       Instruction* instruction) {
  constexpr size_t most = 6;  // of more operands in formats, all or none
  std::vector<size_t> formats;
  if (instruction->launch()->op()->flags & GALLEY_OP_LOAD_ON_HOST) return std::vector<bool>(staged.size(), false);
  for (size_t k = 0; k < staged.size(); ++k)
    if (const galley_tensor t = staged[k].tensor; !homes.tensors()[homes.base(t)].storage.format.empty() && homes.unpacks(t))
      formats.push_back(k);
  std::vector<std::pair<int64_t, uint32_t>> sets;  // numbers, with a minus; bits
  for (uint32_t chosen = 1; chosen < 1u << std::min(formats.size(), most); ++chosen) {
    int64_t numbers = 0;
    uint32_t kept = 0;
    for (size_t f = 0; f < formats.size(); ++f) {
      if (formats.size() <= most && !(chosen >> f & 1)) continue;
      numbers += homes.tensors()[staged[formats[f]].tensor].count();
      kept |= 1u << formats[f];
    }
    sets.emplace_back(-numbers, kept);
  }
  std::sort(sets.begin(), sets.end());
  std::vector<bool> out(staged.size(), false);
  for (const auto& [numbers, kept] : sets) {
    Instruction i = with_formats(c, homes, *instruction, staged, kept);
    if (!TRY(c.kernels.choose(i, c.program.tensors))->kernel) continue;
    *instruction = std::move(i);
    for (size_t k = 0; k < staged.size(); ++k) out[k] = kept >> k & 1;
    break;
  }
  return out;
}

}  // namespace galley
