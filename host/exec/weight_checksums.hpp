// Computes checksums of weights (galley/checksum.h): kernels do so for weights where kernels compute, the host for the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/executor.hpp"
#include "host/plan/checksums.hpp"

namespace galley {

/// One thread. take() waits for everything that is under way, and allocates nothing.
class WeightChecksums {
 public:
  /// Is for frozen weights (SegmentKind::Frozen) or trained ones (SegmentKind::Trained); `executor` outlives it.
  WeightChecksums(Executor& executor, SegmentKind kind)
      : executor_(executor), kind_(kind), checksums_(weight_checksums(executor.program(), kind)) {}

  /// Computes one number for each tensor of Program::frozen or Program::trained, in its order.
  Status take(std::span<uint64_t> out) const;

 private:
  Executor& executor_;
  SegmentKind kind_;
  std::vector<WeightChecksum> checksums_;
};

}  // namespace galley
