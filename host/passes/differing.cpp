#include "host/passes/differing.hpp"

#include <algorithm>
#include <functional>

#include "galley/op.h"
#include "host/plugins/attributes.hpp"

namespace galley {

Differing::Differing(const Compilation& c) : c_(c) {
  if (c.options.lanes.together == 1) return;
  differs_.assign(c.graph.tensor_count() + 1, false);
  for (galley_tensor t = 1; t <= c.graph.tensor_count(); ++t) {
    const GraphTensor& x = c.graph.tensor(t);
    differs_[t] =
        x.part || (*this)(x.storage.numbers_of) || std::ranges::any_of(x.initial.inputs, [&](galley_tensor in) { return (*this)(in); });
  }
}

bool Differing::reads(const GraphNode& node) const { return std::ranges::any_of(node.inputs, std::cref(*this)); }

bool Differing::along_axis(const GraphNode& node) const {
  if (!(node.op->flags & GALLEY_OP_EXCHANGE)) return false;
  const galley_attr* axis = node.attrs.find("axis");
  return axis && attr_text(*axis) == c_.options.lanes.axis;
}

bool Differing::works_on_parts(const GraphNode& node) const {
  return !differs_.empty() && (reads(node) || along_axis(node) || std::ranges::any_of(node.outputs, std::cref(*this)));
}

void Differing::set(galley_tensor t) {
  if (differs_.size() <= t) differs_.resize(c_.graph.tensor_count() + 1, false);
  differs_[t] = true;
}

void Differing::add(const GraphNode& node) {
  if (differs_.empty()) return;
  const Roles& roles = c_.roles;
  const bool same = node.op == roles.sum_squares || (along_axis(node) && (node.op == roles.all_reduce || node.op == roles.all_reduce_here ||
                                                                          node.op == roles.all_gather || node.op == roles.all_gather_here));
  if (same || !(reads(node) || along_axis(node))) return;
  for (const galley_tensor t : written_by(node))
    if (t) set(t);
}

}  // namespace galley
