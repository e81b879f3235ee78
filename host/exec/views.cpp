#include "host/exec/views.hpp"

#include <algorithm>

#include "host/plugins/abi.hpp"

namespace galley {
namespace {

bool differs_later(const Instruction& code) {
  const auto differs = [](const Operand& operand) { return operand.present() && operand.access != operand.later; };
  return std::any_of(code.inputs.begin(), code.inputs.end(), differs) || std::any_of(code.outputs.begin(), code.outputs.end(), differs);
}

// Only `micro` runs more than once in a window; the others have no later pass.
size_t variants(SegmentKind kind, const Instruction& code) {
  if (!code.launch()) return 0;
  return kind == SegmentKind::Micro && differs_later(code) ? 2 : 1;
}

// Counts pointers to operands: those of the node, and once more those of components.
size_t operands_of(const Instruction& code) {
  size_t n = code.inputs.size() + code.outputs.size();
  for (const Operand& operand : code.inputs)
    if (operand.format) n += operand.format->count;
  return n;
}

}  // namespace

NodeViews::NodeViews(const Program& program, const Machine& machine) {
  size_t views = 0, operands = 0, pointers = 0, attrs = 0;
  for (size_t s = 0; s < program.segments.size(); ++s) {
    for (const Instruction& code : program.segments[s].code) {
      const size_t n = variants(static_cast<SegmentKind>(s), code);
      if (n == 0) continue;
      views += n * code.launch()->nodes.size();
      operands += n * (code.inputs.size() + code.outputs.size());
      pointers += operands_of(code) * n;
      for (const LaunchNode& node : code.launch()->nodes) attrs += n * node.attrs.view().size();
    }
  }
  views_.reserve(views);
  view_pointers_.reserve(views);
  operands_.reserve(operands);
  operand_pointers_.reserve(pointers);
  attr_pointers_.reserve(attrs);
  for (size_t s = 0; s < program.segments.size(); ++s) {
    const Segment& segment = program.segments[s];
    pairs_[s].resize(segment.code.size());
    for (size_t i = 0; i < segment.code.size(); ++i) {
      const Instruction& code = segment.code[i];
      const size_t n = variants(static_cast<SegmentKind>(s), code);
      if (n == 0) continue;
      Pair& pair = pairs_[s][i];
      pair.n = static_cast<uint32_t>(code.launch()->nodes.size());
      pair.first = build(program, machine, code, false);
      pair.later = n == 2 ? build(program, machine, code, true) : pair.first;
    }
  }
}

const galley_operand* NodeViews::build(const Program& program, const Machine& machine, const Operand& operand, bool later) {
  const uint32_t access = later ? operand.later : operand.access;
  if (operand.present()) {
    const char* name = program.tensors[static_cast<size_t>(operand.tensor)].name.c_str();
    operands_.push_back(operand_view(operand, name, machine.kernel_address(operand.tensor, operand.offset), access));
  } else if (operand.format || operand.inner) {
    operands_.push_back(operand_view(
        operand, operand.format ? operand.format->name.c_str() : between_.emplace_back("between " + std::to_string(operand.inner)).c_str(),
        nullptr, access));
  } else {
    return nullptr;
  }
  return &operands_.back();
}

const galley_node_view* const* NodeViews::build(const Program& program, const Machine& machine, const Instruction& code, bool later) {
  const size_t inputs = operand_pointers_.size(), begin = operands_.size();
  for (const Operand& operand : code.inputs) operand_pointers_.push_back(build(program, machine, operand, later));
  // Operands of components have all been built by now.
  size_t built = begin;
  for (const Operand& operand : code.inputs) {
    if (!operand.given()) continue;
    galley_operand& view = operands_[built++];
    if (!operand.format) continue;
    view.components = operand_pointers_.data() + operand_pointers_.size();
    for (size_t c = 0; c < operand.format->count; ++c) operand_pointers_.push_back(operand_pointers_[inputs + operand.format->first + c]);
  }
  const size_t outputs = operand_pointers_.size();
  for (const Operand& operand : code.outputs) operand_pointers_.push_back(build(program, machine, operand, later));
  const size_t first = view_pointers_.size();
  for (const LaunchNode& node : code.launch()->nodes) {
    const size_t attrs = attr_pointers_.size();
    for (const galley_attr* attr : node.attrs.view()) attr_pointers_.push_back(attr);
    const std::span<const galley_operand* const> pointers = operand_pointers_;
    galley_node_view& view =
        views_.emplace_back(node_view(node, program.length, pointers.subspan(inputs + node.inputs.first, node.inputs.count),
                                      pointers.subspan(outputs + node.outputs.first, node.outputs.count),
                                      std::span<const galley_attr* const>(attr_pointers_).subspan(attrs)));
    if (!node.op) view.op = code.launch()->kernel->op;
    view_pointers_.push_back(&view);
  }
  return view_pointers_.data() + first;
}

}  // namespace galley
