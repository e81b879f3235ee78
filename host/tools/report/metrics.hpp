// Writes metrics.jsonl: one line for each step, however often the run was resumed, and one for each validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "host/base/file.hpp"
#include "host/session/events.hpp"

namespace galley {

/// Appends; every line is one write. Nothing is allocated for a line. One thread.
class MetricsFile final : public Observer {
 public:
  /// Opens the file, cut down to the lines of steps that are done (whatever a killed run left after them goes).
  Status started(const StartEvent& start) override;
  Status step(const StepEvent& m) override;
  Status validated(const ValidationEvent& v) override;
  Status saving() override { return file_->sync(); }

 private:
  std::optional<File> file_;
  std::string line_;  ///< keeps its memory
};

}  // namespace galley
