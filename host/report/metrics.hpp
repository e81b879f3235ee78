// metrics.jsonl: one line a step, however often the run was resumed, and one a validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "host/base/file.hpp"

namespace galley {

struct StepMetrics {
  int64_t step = 0;      ///< from 1
  double loss = 0;       ///< mean over the window's valid tokens
  double grad_norm = 0;  ///< before clipping
  double lr = 0;         ///< of the first optimizer
  int64_t tokens = 0;    ///< valid ones
  double seconds = 0;    ///< from the end of the step before
};

/// Appends; every line is one write. Nothing is allocated for a line. One thread.
class MetricsFile {
 public:
  /// Opens the file, cut down to the lines of steps ≤ `last_step` (whatever a killed run left behind them goes). 0: empty.
  static Result<MetricsFile> open(const std::filesystem::path& path, int64_t last_step);
  Status step(const StepMetrics& m);
  Status validation(int64_t step, double loss);
  Status sync() { return file_.sync(); }

 private:
  explicit MetricsFile(File file) : file_(std::move(file)) {}
  File file_;
};

}  // namespace galley
