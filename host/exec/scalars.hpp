// The block of step scalars: what the host tells kernels at a step's begin, and reads when it is over. See GALLEY_SCALAR_… for their
// meanings.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "host/exec/machine.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// What a step begins with.
struct StepBegin {
  int64_t attempted = 1;      ///< from 1; its window is attempted − 1
  int64_t applied = 1;        ///< from 1: the number this step gets if it is applied; schedules follow it
  int64_t window_tokens = 0;  ///< valid tokens of the whole window
  double loss_scale = 1;      ///< > 0
};

/// Writes go through queue 0, so that they come between the work before and the work after them. Allocates only when made. One thread.
class Scalars {
 public:
  /// Both outlive it. `seed` keys the random numbers of the run.
  Scalars(const Program& program, Machine& machine, uint64_t seed);

  /// All scalars: loss, norm and found-inf 0, apply 1, loss seed = scale / tokens (0 without tokens), gradient factor 1 / scale, options by
  /// their schedules.
  Status begin_step(const StepBegin& begin);
  /// The first row of micro-batch `index` in its window. Synchronizes only when one window has more micro-batches than the program says.
  Status begin_micro(int64_t index);
  /// The value now, everything enqueued being done. A scalar that no node asked for has no slot: an error.
  Result<double> read(uint32_t which);
  bool has(uint32_t which) const { return find(which) != nullptr; }

 private:
  using Random = std::array<int64_t, 4>;
  const ScalarSlot* find(uint32_t which) const;
  template <class T>
  void set(const ScalarSlot& slot, T value);

  const Program& program_;
  Machine& machine_;
  uint64_t seed_;
  int64_t window_ = 0;
  std::vector<std::byte> image_;  ///< the block as it was last sent; queue 0 may still be reading it
  std::vector<Random> rows_;      ///< likewise GALLEY_SCALAR_RANDOM, one a micro-batch
};

}  // namespace galley
