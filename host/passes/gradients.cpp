// Gradients that lie where nothing computes. A micro-batch adds them up where kernels compute, from the first node that writes one to the
// last: what earlier micro-batches have made is brought before, and the sum is taken back behind.
#include "host/passes/place.hpp"

namespace galley {

void Placer::contributions(const std::vector<Item>& items) {
  for (const Item& item : items)
    for (const Ref& r : item.outputs)
      if (r.tensor && tensors_[r.tensor].kind == GALLEY_KIND_GRADIENT && !tensors_[r.tensor].placement.empty()) ++contributions_[r.tensor];
}

/// Where a node writes it.
Result<Operand> Placer::gradient_here(galley_tensor t, const Range& range, bool adds) {
  if (kind_ != SegmentKind::Micro) return TRY(stage(t, range, adds)).front();
  const auto [accumulator, fresh] = accumulators_.try_emplace(t, no_tensor);
  if (fresh) {
    const Operand there = all_of(home(t)), here = temporary("sum of " + tensors_[t].name, there.dtype, there.shape, tensors_[t].use);
    program_.tensors[static_cast<size_t>(here.tensor)].owner = Owner::Gradients;
    accumulator->second = here.tensor;
    if (program_.micro_batches > 1) copy(there, here, When::LaterMicroBatches);
  }
  return all_of(accumulator->second);
}

/// Behind a node that has written it.
Status Placer::put_gradient_back(galley_tensor t, const Range& range, const Operand& here) {
  if (kind_ != SegmentKind::Micro) return put_back(t, range, {here});
  if (--contributions_.at(t) == 0) copy(here, all_of(home(t)));
  return ok();
}

}  // namespace galley
