#include "host/passes/place/emitter.hpp"

#include <algorithm>

#include "galley/op.h"
#include "host/passes/constants.hpp"
#include "host/passes/copy.hpp"
#include "host/passes/place/pieces.hpp"

namespace galley {

Emitter::Emitter(Compilation& c, const Homes& homes, SegmentKind kind)
    : c_(c), homes_(homes), code_(c, kind), staging_(c, homes, code_), squares_(c, homes, code_, staging_) {
  if (kind != SegmentKind::Micro) return;
  accumulators_.emplace(c, homes, code_);
  if (c.lane_loss) loss_ = *c.draft.scalars.get(GALLEY_SCALAR_LOSS);
}

std::vector<TensorId> Emitter::transients() const {
  std::vector<TensorId> out(homes_.tensors().count() + 1, no_tensor);
  for (const auto& [t, id] : transients_) out[t] = id;
  return out;
}

Homes::Place Emitter::place(galley_tensor id) {
  if (loss_ && id == loss_) id = c_.lane_loss;
  const GraphTensor& t = homes_.tensors()[id];
  const SegmentKind kind = code_.kind();
  // Where the model is evaluated, the window's nodes run in the same segment, and what they make is a transient of it.
  const bool of_step = kind == SegmentKind::Window || kind == SegmentKind::Micro || kind == SegmentKind::Update;
  if (t.slice.of || (t.kind != GALLEY_KIND_TRANSIENT && t.kind != GALLEY_KIND_FILE) || (of_step && homes_.contains(id)))
    return homes_.place(id);
  const auto [it, fresh] = transients_.try_emplace(id, no_tensor);
  if (fresh) {
    const auto kept = outlives_.find(id);
    it->second = add_tensor(c_.program, {t.name, t.dtype, t.shape, 0, 0, Owner::Activations,
                                         kept == outlives_.end() ? Life::Segment : kept->second, label(c_.strategies, t.use)});
  }
  return {it->second, 0};
}

Operand Emitter::operand(const Ref& ref, const galley_operand_rule* rule) {
  const GraphTensor& t = homes_.tensors()[ref.tensor];
  Operand out = homes_.operand(ref.tensor, place(ref.tensor));
  if (ref.rows >= 0) {
    const bool one_a_row = (rule && rule->flags & GALLEY_OPERAND_SAME_ROWS) || t.shape.empty();
    const int64_t columns = one_a_row ? 1 : t.shape.back();
    out.offset += ref.row * columns * galley_dtype_bytes(t.dtype);
    out.shape = one_a_row ? Shape{ref.rows} : Shape{ref.rows, columns};
  }
  return out;
}

TensorPiece Emitter::piece_of(const Item& item, const TensorPiece& piece, const Ref& ref, const galley_operand_rule* rule) const {
  const Cut* const cut = c_.cuts.of_node(item.node->id) ? homes_.cut(ref.tensor) : nullptr;
  if (!cut) return piece.of(rule);
  return piece.all() ? homes_.own(*cut) : piece;
}

Result<std::vector<Operand>> Emitter::inputs(const Item& item, const TensorPiece& piece, std::vector<StagedInput>* staged) {
  std::vector<Operand> out;
  for (size_t k = 0; k < item.inputs.size(); ++k) {
    const Ref& r = item.inputs[k];
    if (!r.tensor) {
      out.emplace_back();
      continue;
    }
    const galley_operand_rule* rule = input_rule(item.node->op, k);
    const bool inout = updates_input(item.node->op, k);
    const TensorPiece mine = piece_of(item, piece, r, rule);
    if (!homes_.plain(r.tensor)) {
      staged->push_back({k, r.tensor, inout, mine, TRY(staging_.bring(r.tensor, mine, Staging::For::Reading))});
      out.emplace_back();
      continue;
    }
    out.push_back(with_access(mine.of(operand(r, rule)), inout ? GALLEY_READ_WRITE : GALLEY_READ));
  }
  return out;
}

Result<std::vector<Operand>> Emitter::outputs(const Item& item, const TensorPiece& piece) {
  const GraphNode& node = *item.node;
  std::vector<Operand> out;
  for (size_t k = 0; k < item.outputs.size(); ++k) {
    const Ref& r = item.outputs[k];
    if (!r.tensor) {
      out.emplace_back();
      continue;
    }
    const galley_operand_rule* rule = output_rule(node.op, k);
    const GraphTensor& t = homes_.tensors()[r.tensor];
    const bool adds = chosen(item.accumulate, k);
    const TensorPiece mine = piece_of(item, piece, r, rule);
    const bool micro = accumulators_.has_value();
    Operand o = micro && accumulators_->has(t.id) ? accumulators_->here(t.id)
                : t.storage.placement.empty() && !homes_.cut(t.id)
                    ? mine.of(operand(r, rule))
                    : TRY(staging_.bring(t.id, mine, adds ? Staging::For::Reading : Staging::For::Writing)).front();
    o.access = o.later = adds ? GALLEY_ACCUMULATE : GALLEY_WRITE;
    if (micro && t.kind == GALLEY_KIND_GRADIENT && c_.program.in_a_lane(c_.program.micro_batches) > 1) o.later = GALLEY_ACCUMULATE;
    if (o.later == GALLEY_ACCUMULATE && !(rule->flags & GALLEY_OPERAND_ACCUMULATES))
      return plugin_error("op '" + std::string(node.op->name) + "' of '" + node.name + "' cannot add into '" + t.name + "', which it must");
    out.push_back(std::move(o));
  }
  return out;
}

Status Emitter::emit(const Item& item, const TensorPiece& piece, const galley_cost& cost, double share) {
  const GraphNode& node = *item.node;
  std::vector<StagedInput> staged;
  std::vector<Operand> read = TRY(inputs(item, piece, &staged)), written = TRY(outputs(item, piece));
  Instruction i = launch_of({node.name, node.op, node.attrs, item.training ? GALLEY_NODE_TRAINING : 0, item.first_row, node.block},
                            std::move(read), std::move(written));
  i.strategy = label(c_.strategies, node.use);
  i.launch()->flops = share * cost.flops;
  i.launch()->link_bytes = share * cost.link_bytes;
  const std::vector<bool> kept = TRY(keep_formats(c_, homes_, staged, &i));
  for (size_t k = 0; k < staged.size(); ++k) {
    const StagedInput& s = staged[k];
    if (kept[k]) continue;
    Operand numbers = TRY(staging_.numbers(s.tensor, s.piece, s.components, Staging::For::Reading));
    i.inputs[s.input] = with_access(std::move(numbers), s.updated ? GALLEY_READ_WRITE : GALLEY_READ);
  }
  code_.add(i);
  for (size_t k = 0; k < staged.size(); ++k) {
    const StagedInput& s = staged[k];
    if (!s.updated) continue;
    if (!kept[k]) {
      TRY_STATUS(make_copies(node, s, i.inputs[s.input]));
      TRY_STATUS(staging_.pack(s.tensor, s.piece, i.inputs[s.input], s.components));
    }
    TRY_STATUS(staging_.put_back(s.tensor, s.piece, s.components));
  }
  for (size_t k = 0; k < item.outputs.size(); ++k) {
    const galley_tensor t = item.outputs[k].tensor;
    if (t && accumulators_ && accumulators_->has(t)) TRY_STATUS(accumulators_->written(t));
    else if (t && !homes_.tensors()[t].storage.placement.empty())
      TRY_STATUS(staging_.put_back(t, piece_of(item, piece, item.outputs[k], output_rule(node.op, k)), {i.outputs[k]}));
  }
  return ok();
}

std::set<galley_tensor> Emitter::copy_after(const std::vector<Item>& items) {
  std::map<galley_tensor, galley_node> last;
  for (const Item& item : items)
    for (size_t k = 0; k < item.inputs.size(); ++k)
      if (const galley_tensor t = item.inputs[k].tensor; t && updates_input(item.node->op, k)) last[t] = item.node->id;
  std::set<galley_tensor> out;
  for (galley_tensor t = 1; t <= c_.graph.tensor_count(); ++t) {
    const GraphTensor& x = c_.graph.tensor(t);
    const galley_tensor copied = copied_by(c_, x);
    if (!copied || x.unused || x.storage.numbers_of || !homes_.plain(t)) continue;
    const GraphTensor& of = c_.graph.tensor(copied);
    const auto writer = last.find(of.id);
    if (of.storage.placement.empty() || writer == last.end() || c_.cuts.gathered.contains(of.id)) continue;
    copies_[{writer->second, of.id}].push_back(t);
    out.insert(t);
  }
  return out;
}

Status Emitter::make_copies(const GraphNode& node, const StagedInput& written, const Operand& numbers) {
  const auto copies = copies_.find({node.id, written.tensor});
  if (copies == copies_.end()) return ok();
  for (const galley_tensor t : copies->second) {
    const GraphTensor& x = c_.graph.tensor(t);
    TRY_STATUS(code_.op(c_.roles.copy, "init " + x.name, {numbers}, {written.piece.of(homes_.operand(t))}, x.initial.attrs));
  }
  return ok();
}

Status Emitter::item(const Item& item) {
  if (squares_.takes(*item.node)) return squares_.add(*item.node);
  if (item.node->op == c_.roles.norm_finish) TRY_STATUS(squares_.finish());
  const Cut* const cut = c_.cuts.of_node(item.node->id);
  const NumberRange own = cut ? cut->own() : NumberRange();
  if (cut && own.count == 0) return ok();
  const galley_cost cost = TRY(item_cost(c_.graph, homes_.tensors(), item));
  const Pieces pieces = TRY(pieces_of(c_, homes_, item));
  if (!pieces.numbers && (!cut || cut->owned())) return emit(item, {}, cost, 1);
  const int64_t all = cut ? cut->ends.back() : pieces.all, end = cut ? own.first + own.count : all;
  const int64_t each = pieces.numbers ? pieces.numbers : own.count;
  for (int64_t first = own.first; first < end; first += each) {
    const TensorPiece piece = {first, std::min(each, end - first), pieces.numbers ? pieces.rows : cut->rows};
    TRY_STATUS(emit(item, piece, cost, static_cast<double>(piece.count) / static_cast<double>(all)));
  }
  return ok();
}

Status Emitter::items(const std::vector<Item>& items, std::vector<uint32_t>* begins) {
  for (const Item& i : items) {
    if (begins) begins->push_back(static_cast<uint32_t>(code_.size()));
    TRY_STATUS(item(i));
  }
  return ok();
}

}  // namespace galley
