#include "host/passes/place/squares.hpp"

#include <algorithm>
#include <utility>

#include "host/passes/place/exchanges.hpp"

namespace galley {

bool Squares::takes(const GraphNode& node) const {
  return node.op == c_.roles.sum_squares && (homes_.cut(node.inputs[0]) || is_neighbours(node));
}

bool Squares::is_neighbours(const GraphNode& node) const {
  const galley_tensor parameter = c_.graph.tensor(node.inputs[0]).parameter;
  return parameter && c_.graph.tensor(parameter).part;
}

Status Squares::add_neighbours(const GraphNode& node) {
  if (of_parts_ == no_tensor) {
    const int64_t count =
        std::ranges::count_if(c_.decisions.trainable, [&](galley_tensor t) { return c_.graph.tensor(t).part.has_value(); });
    of_parts_ = code_.temporary("squares of parts", GALLEY_F64, {count}, no_use).tensor;
  }
  Operand sum = code_.all_of(of_parts_);
  sum.offset = std::ssize(totals_) * galley_dtype_bytes(GALLEY_F64);
  sum.shape = {1};
  totals_.push_back(node.outputs[0]);
  return code_.op(c_.roles.sum_squares, node.name, {TRY(staging_.read(node.inputs[0]))}, {sum}, node.attrs);
}

Status Squares::finish_neighbours() {
  if (totals_.empty()) return ok();
  Operand sum = code_.all_of(of_parts_);
  TRY_STATUS(code_.op(c_.roles.all_reduce_here, "reduce squares of parts", {sum}, {}, sum_of_neighbours(c_.program)));
  sum.shape = {1};
  for (const galley_tensor made : std::exchange(totals_, {})) {
    TRY_STATUS(code_.op(c_.roles.copy, c_.graph.tensor(made).name, {sum}, {homes_.operand(made)}, {}));
    sum.offset += galley_dtype_bytes(GALLEY_F64);
  }
  of_parts_ = no_tensor;
  return ok();
}

Operand Squares::blocks(int64_t first, int64_t count) const {
  Operand out = code_.all_of(all_);
  out.offset = first * galley_dtype_bytes(out.dtype);
  out.shape = {count};
  return out;
}

Status Squares::add(const GraphNode& node) {
  if (is_neighbours(node)) return add_neighbours(node);
  if (all_ == no_tensor) {
    int64_t count = 0;
    for (const auto& [t, cut] : c_.cuts.tensors)
      if (c_.graph.tensor(t).kind == GALLEY_KIND_GRADIENT) count += (cut.ends.back() + kCutBlock - 1) / kCutBlock;
    all_ = code_.temporary("squares of blocks", GALLEY_F64, {count}, no_use).tensor;
    AttrList zero;
    zero.set("value", 0.0);
    TRY_STATUS(code_.op(c_.roles.fill, "begin squares of blocks", {}, {code_.all_of(all_)}, std::move(zero)));
  }
  Asked made = {node.inputs[0], node.outputs[0], asked_.empty() ? 0 : asked_.back().block + asked_.back().blocks, 0};
  const Cut& cut = *homes_.cut(made.gradient);
  made.blocks = (cut.ends.back() + kCutBlock - 1) / kCutBlock;
  asked_.push_back(made);
  const TensorPiece own = homes_.own(cut);
  if (own.count == 0) return ok();
  const std::vector<Operand> part = TRY(staging_.bring(made.gradient, own, Staging::For::Reading));
  return code_.op(c_.roles.block_squares, node.name, {part.front()},
                  {blocks(made.block + own.first / kCutBlock, (own.count + kCutBlock - 1) / kCutBlock)}, {});
}

Status Squares::finish() {
  TRY_STATUS(finish_neighbours());
  if (asked_.empty()) return ok();
  TRY_STATUS(code_.op(c_.roles.all_reduce_here, "reduce squares of blocks", {code_.all_of(all_)}, {}, sum_of_sharers(c_.program)));
  for (const Asked& made : std::exchange(asked_, {}))
    TRY_STATUS(code_.op(c_.roles.sum_blocks, "sum of squares of " + homes_.tensors()[made.gradient].name, {blocks(made.block, made.blocks)},
                        {homes_.operand(made.sum)}, {}));
  all_ = no_tensor;
  return ok();
}

}  // namespace galley
