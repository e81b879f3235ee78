#include "host/passes/place/accumulators.hpp"

namespace galley {

Accumulators::Accumulators(const Compilation& c, const Homes& homes, SegmentCode& code) : c_(c), homes_(homes), code_(code) {
  for (const auto* part : {&c.orders.forward, &c.orders.head, &c.orders.backward})
    for (const Item& item : *part)
      for (const Ref& r : item.outputs) {
        const GraphTensor* t = r.tensor ? &homes.tensors()[r.tensor] : nullptr;
        if (t && t->kind == GALLEY_KIND_GRADIENT && !t->storage.placement.empty()) ++contributions_[r.tensor];
      }
}

Operand Accumulators::here(galley_tensor t) {
  const auto [accumulator, fresh] = accumulators_.try_emplace(t);
  if (fresh) {
    const Operand there = code_.all_of(homes_.home(t));
    const GraphTensor& gradient = homes_.tensors()[t];
    accumulator->second = code_.temporary("sum of " + gradient.name, there.dtype, there.shape, gradient.use, Owner::Gradients);
    if (c_.program.micro_batches > 1) code_.copy(there, accumulator->second, SegmentCode::When::LaterMicroBatches);
  }
  return accumulator->second;
}

void Accumulators::written(galley_tensor t) {
  if (--contributions_.at(t) == 0) code_.copy(accumulators_.at(t), code_.all_of(homes_.home(t)));
}

}  // namespace galley
