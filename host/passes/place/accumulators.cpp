#include "host/passes/place/accumulators.hpp"

#include "host/passes/place/exchanges.hpp"

namespace galley {

Accumulators::Accumulators(Compilation& c, const Homes& homes, SegmentCode& code)
    : c_(c),
      homes_(homes),
      code_(code),
      in_a_lane_(c.program.in_a_lane(c.program.micro_batches)),
      several_(c.program.lanes > c.program.groups()) {
  for (const auto* part : {&c.orders.forward, &c.orders.head, &c.orders.backward})
    for (const Item& item : *part)
      for (const Ref& r : item.outputs) {
        const GraphTensor* t = r.tensor ? &homes.tensors()[r.tensor] : nullptr;
        if (t && t->kind == GALLEY_KIND_GRADIENT && (c.program.lanes > 1 || !t->storage.placement.empty())) ++totals_[r.tensor].left;
      }
}

Operand Accumulators::here(galley_tensor t) {
  Total& total = totals_.at(t);
  if (total.begun) return total.here;
  total.begun = true;
  const GraphTensor& gradient = homes_.tensors()[t];
  const Operand home = code_.all_of(homes_.home(t));
  const Shape& shape = gradient.shape;
  const bool placed = !gradient.storage.placement.empty(), apart = adds_apart(t);
  Operand between = home;  // the sum between the micro-batches of a lane
  if (apart && in_a_lane_ > 1)
    between = total.lane =
        code_.all_of(add_tensor(c_.program, {"lane's sum of " + gradient.name, home.dtype, shape, 0, code_.tensor(home.tensor).memory,
                                             Owner::Gradients, Life::Window, label(c_.strategies, gradient.use)}));
  if (!placed && !(apart && in_a_lane_ == 1)) return total.here = between;
  total.here = code_.temporary((placed ? "sum of " : "lane's sum of ") + gradient.name, home.dtype, shape, gradient.use, Owner::Gradients);
  if (in_a_lane_ > 1) code_.copy(between, total.here, When::LaneGoesOn);
  return total.here;
}

Status Accumulators::written(galley_tensor t) {
  Total& total = totals_.at(t);
  if (--total.left > 0) return ok();
  const GraphTensor& gradient = homes_.tensors()[t];
  const Operand home = code_.all_of(homes_.home(t));
  const bool placed = !gradient.storage.placement.empty();
  if (!adds_apart(t)) {
    if (c_.program.groups() > 1)
      TRY_STATUS(code_.op(c_.roles.all_reduce_here, "reduce " + gradient.name, {total.here}, {}, sum_attrs(c_.program), When::LaneEnds));
    if (placed) code_.copy(total.here, home);
    return ok();
  }
  if (placed && in_a_lane_ > 1) code_.copy(total.here, total.lane, When::LaneStays);
  if (!placed) return add_lanes(gradient.name, t, total.here, home);
  const Operand all = code_.temporary("sum of lanes of " + gradient.name, home.dtype, home.shape, gradient.use, Owner::Gradients);
  code_.copy(home, all, When::LaterLaneEnds);
  TRY_STATUS(add_lanes(gradient.name, t, total.here, all));
  code_.copy(all, home, When::LaneEnds);
  return ok();
}

Status Accumulators::add_lanes(const std::string& name, galley_tensor of, const Operand& lane, Operand to) {
  const bool alone = c_.program.groups() == 1;
  const Cut* const cut = homes_.cut(of);
  if (cut) to.shape = {cut->own().count};
  if (cut && c_.program.repeats_parts()) return add_groups(name, of, *cut, lane, to);
  TRY_STATUS(code_.op(alone ? c_.roles.copy
                      : cut ? c_.roles.reduce_scatter
                            : c_.roles.all_reduce,
                      "reduce " + name, {lane}, {to},
                      alone ? AttrList()
                      : cut ? parts_attrs(c_.program, *cut, homes_.described(of).front())
                            : sum_attrs(c_.program),
                      When::LaneEnds));
  code_.last().outputs[0].later = GALLEY_ACCUMULATE;
  return ok();
}

/// The part of the group's sum, then that of all groups'.
Status Accumulators::add_groups(const std::string& name, galley_tensor of, const Cut& cut, const Operand& lane, const Operand& to) {
  const Operand part = code_.temporary("group's sum of " + name, to.dtype, to.shape, homes_.tensors()[of].use, Owner::Gradients);
  TRY_STATUS(code_.op(c_.roles.reduce_scatter, "reduce " + name, {lane}, {part}, parts_attrs(c_.program, cut, homes_.described(of).front()),
                      When::LaneEnds));
  TRY_STATUS(code_.op(c_.roles.all_reduce, "reduce groups of " + name, {part}, {to}, sum_of_groups(c_.program), When::LaneEnds));
  code_.last().outputs[0].later = GALLEY_ACCUMULATE;
  return ok();
}

Status Accumulators::add_scalar(galley_tensor of_lane, galley_tensor of_window) {
  TRY_STATUS(add_lanes(homes_.tensors()[of_window].name, of_window, homes_.operand(of_lane), homes_.operand(of_window)));
  code_.last().outputs[0].access = GALLEY_ACCUMULATE;
  return ok();
}

}  // namespace galley
