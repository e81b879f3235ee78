// Checksums of weights (galley/checksum.h): kernels make those of what lies where kernels compute, the host makes the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/executor.hpp"
#include "host/plan/sums.hpp"

namespace galley {

/// One thread. Taking them waits for everything that is under way, and allocates nothing.
class WeightSums {
 public:
  /// Of frozen weights (SegmentKind::Frozen) or trained ones (SegmentKind::Trained); `executor` outlives it.
  WeightSums(Executor& executor, SegmentKind kind) : executor_(executor), kind_(kind), sums_(weight_sums(executor.program(), kind)) {}

  /// As Program::frozen or Program::trained.
  Status take(std::span<uint64_t> out) const;

 private:
  Executor& executor_;
  SegmentKind kind_;
  std::vector<WeightSum> sums_;
};

}  // namespace galley
