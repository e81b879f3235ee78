// What a person sees of a run: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "host/report/metrics.hpp"

namespace galley {

class Progress {
 public:
  /// `peak_flops` of the target and FLOPs of a step give the share of the machine's peak. Decides by isatty(stdout).
  Progress(int64_t steps, double flops_a_step, double peak_flops);
  /// `aside`: of the step's seconds, those that went into validation and saving. They count for the ETA, not as training.
  void step(const StepMetrics& m, double aside);
  void validation(int64_t step, double loss);
  /// A line of its own, above the bar.
  void note(const std::string& text);
  void finish();

 private:
  void clear();
  int64_t steps_;
  double flops_a_step_;
  double peak_flops_;
  bool terminal_;
  bool drawn_ = false;
  double smoothed_ = 0;  ///< seconds a step
  double aside_ = 0;     ///< seconds of validation and saving so far
  int64_t seen_ = 0;
  struct {
    double steps = 0, tokens = 0, seconds = 0;
  } line_;                ///< since the last plain line
  double last_line_ = 0;  ///< when a plain line was last printed, seconds of a steady clock
};

}  // namespace galley
