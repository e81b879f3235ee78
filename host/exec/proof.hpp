// Proof of training: that what is to be trained gets gradients and moves, and that what is frozen stays. An adapter that silently does not
// train is the mistake that costs its users most; the run stops instead and says which tensors it is.
//
//   after_load · for each step { before_step · … the step's segments … · after_step } · finish
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/executor.hpp"

namespace galley {

/// One thread. Steps allocate nothing unless they fail.
class Proof {
 public:
  /// `executor` outlives it.
  explicit Proof(Executor& executor);

  /// Takes the checksums of frozen tensors: after `load`, and after a state was loaded.
  Status after_load();

  /// The checksums that after_load() took, by the tensors' names.
  std::map<std::string, uint64_t> frozen() const;

  /// Before the step's first micro-batch (updates may be part of it): takes the checksums of parameters that have yet to move, from the
  /// second applied step on and while no learning rate is 0 (a schedule may begin there).
  Status before_step(const StepBegin& begin);

  /// After the step's last segment; synchronizes. From the second applied step on each trainable tensor must have a finite gradient that is
  /// not all zero (unless it may be: GALLEY_TENSOR_ZERO_GRADIENT; GALLEY_TENSOR_LATE_GRADIENT while no step has moved anything yet), and
  /// must have moved. A tensor that did not move is let off for kPatience steps where rounding can be the reason. Nothing is checked when
  /// the window had no valid token or the step was not applied. Exit code Failed.
  Status after_step(const StepBegin& begin);

  /// Frozen tensors must be as they were. At the end of the run, before anything is exported.
  Status finish();

  /// Trainable tensors that never moved, rounding being the likely reason: for a warning.
  std::vector<std::string> unmoved() const;

  static constexpr int64_t kPatience = 16;  ///< steps in which a tensor that rounding may hold is still compared

 private:
  bool learns(int64_t applied) const;
  bool learned_before(int64_t applied) const;
  double learning_rate(int64_t applied) const;
  Result<double> sum_squares(const Trained& trained);
  Status check_gradients(const StepBegin& begin);
  Status check_movement(const StepBegin& begin);
  Result<bool> rounding_holds(const Trained& trained, const StepBegin& begin);

  Executor& executor_;
  const Program& program_;
  std::vector<uint64_t> frozen_;  ///< checksums, as Program::frozen
  std::vector<uint64_t> before_;  ///< as Program::trained
  std::vector<bool> pending_;     ///< has yet to be seen moving
  bool compares_ = false;         ///< before_ is of the step in hand
  int64_t compared_ = 0;          ///< steps that were compared
};

}  // namespace galley
