// Gradients that lie where nothing computes. A micro-batch adds them up where kernels compute, from the first node that writes one to the
// last: what earlier micro-batches have made is brought before, and the sum is taken back after.
#pragma once

#include <map>

#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"

namespace galley {

class Accumulators {
 public:
  /// Of micro, whose orders say how often each of these gradients is written.
  Accumulators(const Compilation& c, const Homes& homes, SegmentCode& code);
  /// Where a node writes the gradient.
  Operand here(galley_tensor gradient);
  /// To be called after each node that has written it.
  void written(galley_tensor gradient);

 private:
  const Compilation& c_;
  const Homes& homes_;
  SegmentCode& code_;
  std::map<galley_tensor, Operand> accumulators_;
  std::map<galley_tensor, size_t> contributions_;  ///< how often each gradient is still to be written
};

}  // namespace galley
