// What a person sees of a run: a bar on a terminal, plain lines elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "host/report/metrics.hpp"

namespace galley {

class Progress {
 public:
  /// `peak_flops` of the target and FLOPs of a micro-batch give the share of the machine's peak. Decides by isatty(stdout).
  Progress(int64_t steps, double flops_a_micro_batch, double peak_flops);
  /// `aside`: of the step's seconds, those that went into validation and saving. They count for the ETA, not as training.
  void step(const StepMetrics& m, int64_t micro_batches, double aside);
  void validation(int64_t step, double loss);
  /// A line of its own, above the bar.
  void note(const std::string& text);
  void finish();

 private:
  void clear();
  int64_t steps_;
  double flops_a_micro_batch_;
  double peak_flops_;
  bool terminal_;
  bool drawn_ = false;
  double smoothed_ = 0;  ///< seconds a step
  double aside_ = 0;     ///< seconds of validation and saving so far
  int64_t seen_ = 0;
  struct {
    double flops = 0, tokens = 0, seconds = 0;
  } line_;                ///< since the last plain line
  double last_line_ = 0;  ///< when a plain line was last printed, seconds of a steady clock
};

/// The same for work on a number of bytes, on stderr: nothing is shown of what is over within a second.
class BytesProgress {
 public:
  explicit BytesProgress(std::string what);
  ~BytesProgress();
  BytesProgress(const BytesProgress&) = delete;
  BytesProgress& operator=(const BytesProgress&) = delete;
  void update(uint64_t done, uint64_t total);

 private:
  std::string what_;
  bool terminal_, drawn_ = false;
  double begin_, last_;  ///< seconds of a steady clock: when it began, when something was last shown
};

}  // namespace galley
