// Computes checksums of weights (galley/checksum.h): kernels do so for weights where kernels compute, the host for the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/executor.hpp"
#include "host/plan/checksums.hpp"

namespace galley {

/// One thread. take() waits for everything that is under way.
class WeightChecksums {
 public:
  /// Is for frozen weights (SegmentKind::Frozen) or trained ones (SegmentKind::Trained); `executor` outlives it.
  WeightChecksums(Executor& executor, SegmentKind kind)
      : executor_(executor), kind_(kind), checksums_(weight_checksums(executor.program(), kind)) {
    for (size_t i = 0; i < checksums_.size(); ++i)
      if (executor.program().tensors[static_cast<size_t>(checksums_[i].weight)].is_part()) parts_.push_back(i);
  }

  /// Computes one number for each tensor of Program::frozen or Program::trained, in its order: of a tensor of which each process has a part,
  /// that of the whole. All processes have to call it.
  Status take(std::span<uint64_t> out) const;

 private:
  /// Computes what the own parts add.
  Status take_own(std::span<uint64_t> out) const;

  Executor& executor_;
  SegmentKind kind_;
  std::vector<WeightChecksum> checksums_;
  std::vector<size_t> parts_;  ///< those of which this process has a part
};

}  // namespace galley
