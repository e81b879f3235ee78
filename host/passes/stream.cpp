// Updates of tensors that lie where nothing computes, in parts: while one part is updated, the next one comes and the last one goes.
#include <algorithm>
#include <numeric>

#include "galley/op.h"
#include "host/passes/place.hpp"

namespace galley {
namespace {

/// A part is what the link carries in so long: enough to hide what beginning a copy costs (some 10 µs), short enough for many parts of a
/// large tensor.
constexpr double kPartSeconds = 1e-3;
/// Elements: parts begin where vectors do.
constexpr int64_t kPartMultiple = 64;
/// Of one update: a program stays small however slow a link is.
constexpr int64_t kMostParts = 256;

/// Elements that stay together; 0: the op needs the whole tensor.
int64_t grain_of(const galley_op* op, const Shape& shape) {
  switch (op->grain) {
    case GALLEY_GRAIN_ELEMENT: return 1;
    case GALLEY_GRAIN_BLOCK: return op->grain_block;
    case GALLEY_GRAIN_ROW: return shape.empty() ? 1 : shape.back();
    default: return 0;
  }
}

}  // namespace

/// Elements of a part of an update, a multiple of its op's grain; 0: it is not to be split. Operands in rows have one shape and are stored as
/// they are; of the others none is a sum over rows.
Result<int64_t> Placer::part_of(const Item& item) const {
  const galley_op* op = item.node->op;
  if (item.node->section != Section::Update || op->flags & GALLEY_OP_RANDOM) return 0;
  const Shape* shape = nullptr;
  double most = 0;
  const auto splits = [&](const Ref& r, const galley_operand_rule* rule) -> Result<bool> {
    if (!r.tensor) return true;
    const GraphTensor& t = tensors_[r.tensor];
    if (!rule || r.rows >= 0 || !t.storage.empty()) return false;
    if (rule->role != GALLEY_ROLE_ROWS) return rule->role == GALLEY_ROLE_WHOLE && t.placement.empty();
    if (shape && *shape != t.shape) return false;
    shape = &t.shape;
    if (t.placement.empty()) return true;
    const MemoryClass& memory = c_.target.memories[TRY(memory_of(t))];
    const double carried =
        kPartSeconds * std::min(memory.in_bandwidth, memory.out_bandwidth) / static_cast<double>(galley_dtype_bytes(t.dtype));
    most = most > 0 ? std::min(most, carried) : carried;
    return true;
  };
  for (size_t k = 0; k < item.inputs.size(); ++k)
    if (!TRY(splits(item.inputs[k], input_rule(op, k)))) return 0;
  for (size_t k = 0; k < item.outputs.size(); ++k)
    if (!TRY(splits(item.outputs[k], output_rule(op, k)))) return 0;
  const int64_t grain = shape ? grain_of(op, *shape) : 0;
  if (grain <= 0 || most <= 0) return 0;
  const int64_t all = elements(*shape), multiple = op->grain == GALLEY_GRAIN_ROW ? grain : std::lcm(grain, kPartMultiple);
  most = std::max(most, static_cast<double>(all) / static_cast<double>(kMostParts));
  if (most >= static_cast<double>(all)) return 0;
  const int64_t part = std::max(multiple, static_cast<int64_t>(most) / multiple * multiple);
  return part < all ? part : 0;
}

/// Elements [first, first + count) of an operand.
Operand Placer::range_of(Operand operand, int64_t first, int64_t count, bool rows) {
  operand.offset += first * galley_dtype_bytes(operand.dtype);
  operand.shape = rows ? Shape{count / operand.shape.back(), operand.shape.back()} : Shape{count};
  return operand;
}

Status Placer::emit_parts(const Item& item, const Instruction& node, int64_t part) {
  const galley_op* op = node.op;
  Instruction all = node;
  TRY_STATUS(outputs(item, &all));
  const auto split = [&](const galley_operand_rule* rule) { return rule->role == GALLEY_ROLE_ROWS; };
  int64_t count = 0;
  for (size_t k = 0; k < item.inputs.size(); ++k) {
    all.inputs.push_back(item.inputs[k].tensor ? TRY(operand(item.inputs[k], input_rule(op, k))) : Operand());
    if (all.inputs[k].present() && split(input_rule(op, k))) count = elements(all.inputs[k].shape);
  }
  for (int64_t first = 0; first < count; first += part) {
    const int64_t here = std::min(part, count - first);
    Instruction i = all;
    i.flops = all.flops * static_cast<double>(here) / static_cast<double>(count);
    std::vector<std::pair<Operand, Operand>> back;
    // An operand of this part, where kernels compute.
    const auto bring = [&](Operand& o, const galley_operand_rule* rule, bool reads, bool writes) {
      if (!o.present() || !split(rule)) return;
      o = range_of(o, first, here, op->grain == GALLEY_GRAIN_ROW);
      const ProgramTensor& home = program_.tensors[static_cast<size_t>(o.tensor)];
      if (home.memory == 0) return;
      Operand local = temporary("staged " + home.name, o.dtype, o.shape, item.node->use);
      if (reads) copy(o, local);
      if (writes) back.emplace_back(local, o);
      local.access = o.access;
      local.later = o.later;
      o = local;
    };
    for (size_t k = 0; k < i.inputs.size(); ++k) {
      const galley_operand_rule* rule = input_rule(op, k);
      const bool updated = rule->flags & GALLEY_OPERAND_INOUT;
      i.inputs[k] = with_access(i.inputs[k], updated ? GALLEY_READ_WRITE : GALLEY_READ);
      bring(i.inputs[k], rule, true, updated);
    }
    for (size_t k = 0; k < i.outputs.size(); ++k) bring(i.outputs[k], output_rule(op, k), i.outputs[k].access == GALLEY_ACCUMULATE, true);
    code().push_back(std::move(i));
    for (const auto& [local, home] : back) copy(local, home);
  }
  return ok();
}

}  // namespace galley
