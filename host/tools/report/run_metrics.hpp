// Reads metrics.jsonl as columns, for a page.
#pragma once

#include <filesystem>

#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

struct RunMetrics {
  /// {steps, every, last_loss, skipped, speed: {median, low, high} in positions a second, columns: {step: [], loss: [], …}}. Each number
  /// that any step has is a column; nil where a step has none.
  Table steps;
  /// {step: [], loss: []}
  Table validation;
  /// Of the texts that were generated: {step: [], match: [], samples: []}, of evaluations that say a match.
  Table evaluation;
};

/// Reads the metrics. With more than `most` steps, columns have the means of `every` steps in a row, at the last of them. Leaves out a last
/// line that is not complete, as in a run that is under way. No step at all is exit code Recipe, a line that cannot be read exit code
/// Failed.
Result<RunMetrics> read_run_metrics(const std::filesystem::path& run, size_t most);

}  // namespace galley
