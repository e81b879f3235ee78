// Proves training: what is to be trained gets gradients and moves, and what is frozen stays. An adapter that silently does not train is the
// mistake that costs its users most, so the run stops instead and names the tensors.
//
//   after_load · for each step { before_step · … the step's segments … · after_step } · finish
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/executor.hpp"
#include "host/exec/weight_checksums.hpp"

namespace galley {

/// The numbers of a step that the proof needs.
struct ProofStep {
  int64_t attempted = 1;      ///< from 1
  int64_t applied = 1;        ///< from 1: the step's number if it is applied
  int64_t window_tokens = 0;  ///< valid tokens
};

/// One thread. Steps allocate nothing unless they fail.
class Proof {
 public:
  /// `executor` outlives it.
  explicit Proof(Executor& executor);

  /// Computes the checksums of frozen tensors. Must be called after `load`, and after a state was loaded.
  Status after_load();

  /// Returns the checksums that after_load() has computed, by the tensors' names.
  std::map<std::string, uint64_t> frozen() const;

  /// Computes the checksums of parameters that have yet to move, from the second applied step on and while no learning rate is 0 (a
  /// schedule may begin there). Must be called before the step's first micro-batch, because updates may be part of it.
  Status before_step(const ProofStep& begin);

  /// Returns whether before_step() may read parameters; all earlier steps must then have written them.
  bool compares() const;

  /// Checks a step that has been read back. Checks nothing if the window had no valid token or the step was not applied. Gradients have to
  /// be finite. A gradient of zeros proves nothing in one step (a document of two tokens has none for queries and keys); but a tensor that
  /// has had no other in kSpan applied steps does not train, unless none is to be expected (GALLEY_TENSOR_ZERO_GRADIENT;
  /// GALLEY_TENSOR_LATE_GRADIENT: counted from the first step that moved anything). From the second applied step on tensors have to move;
  /// if rounding can be the reason, a tensor may stay for kPatience steps. Exit code Failed.
  Status after_step(const ProofStep& begin);

  /// Checks at the end of the run, before anything is exported, that frozen tensors are as they were and that something got a gradient.
  Status finish();

  /// Returns the names of trainable tensors that should have had a gradient other than zero by now and never had. They are part of a state,
  /// because a process that continues cannot know them otherwise.
  std::vector<std::string> without_gradient() const;
  /// Returns how many of the newest applied steps of this process, in a row, gave no tensor any gradient.
  int64_t steps_without_gradient() const { return silent_; }
  /// Takes what without_gradient() returned when the state was saved.
  void restore(const std::vector<std::string>& without_gradient);

  /// Returns trainable tensors that had a gradient and never moved, probably because of rounding: for a warning.
  std::vector<std::string> unmoved() const;

  static constexpr int64_t kSpan = 32;      ///< applied steps by which a tensor must have had a gradient
  static constexpr int64_t kPatience = 16;  ///< steps in which a tensor that rounding may hold is still compared

 private:
  bool learns(int64_t applied) const;
  bool learned_before(int64_t applied) const;
  double learning_rate(int64_t applied) const;
  double sum_squares(const Trained& trained) const { return executor_.number(trained.sum_squares); }
  Status check_finite(const ProofStep& begin);
  Status check_gradients(const ProofStep& begin);
  Status check_movement(const ProofStep& begin);
  Result<bool> rounding_holds(const Trained& trained, const ProofStep& begin);

  Executor& executor_;
  const Program& program_;
  WeightChecksums frozen_checksums_, trained_checksums_;
  std::vector<uint64_t> frozen_;  ///< checksums, in the order of Program::frozen
  std::vector<uint64_t> before_;  ///< checksums, in the order of Program::trained
  std::vector<uint64_t> now_;     ///< room for either
  std::vector<bool> pending_;     ///< has yet to be seen moving
  std::vector<bool> waiting_;     ///< has yet to be seen with a gradient
  int64_t silent_ = 0;            ///< steps in a row without any gradient
  int64_t last_applied_ = 0;      ///< of the steps of this process
  bool compares_ = false;         ///< before_ belongs to the present step
  int64_t compared_ = 0;          ///< steps that were compared
};

}  // namespace galley
