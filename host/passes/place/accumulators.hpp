// Accumulates gradients that lie where nothing computes. A micro-batch adds a gradient up where kernels compute: the sum of earlier
// micro-batches is copied there before the first node that writes it, and copied back after the last.
#pragma once

#include <map>

#include "host/passes/place/homes.hpp"
#include "host/passes/place/segment_code.hpp"

namespace galley {

class Accumulators {
 public:
  /// `code` is that of micro; its orders say how often each of these gradients is written.
  Accumulators(const Compilation& c, const Homes& homes, SegmentCode& code);
  /// Returns the operand to which a node writes the gradient.
  Operand here(galley_tensor gradient);
  /// Must be called after each node that has written the gradient.
  void written(galley_tensor gradient);

 private:
  const Compilation& c_;
  const Homes& homes_;
  SegmentCode& code_;
  std::map<galley_tensor, Operand> accumulators_;
  std::map<galley_tensor, size_t> contributions_;  ///< how often each gradient is still to be written
};

}  // namespace galley
