// Checksums of weights (galley/checksum.h): kernels make those of what lies where kernels compute, the host makes the others.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/executor.hpp"

namespace galley {

/// One thread. Taking them waits for everything that is under way, and allocates nothing.
class WeightSums {
 public:
  /// `executor` outlives it.
  explicit WeightSums(Executor& executor) : executor_(executor), program_(executor.program()) {}

  /// As Program::frozen.
  Status frozen(std::span<uint64_t> out) const;
  /// As Program::trained.
  Status trained(std::span<uint64_t> out) const;

 private:
  /// Those that kernels make; the rows from `first` on.
  Status run(SegmentKind kind, size_t first, std::span<uint64_t> out) const;
  /// Makes the sum of a weight that lies elsewhere.
  Status complete(TensorId weight, uint64_t* sum) const;

  Executor& executor_;
  const Program& program_;
};

}  // namespace galley
