// Writes metrics.jsonl: one line for each step, however often the run was resumed, one for each validation, and one for the texts of each
// evaluation; and generated.jsonl: these texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "host/base/file.hpp"
#include "host/base/value.hpp"
#include "host/session/events.hpp"

namespace galley {

/// Appends; every line is one write. Nothing is allocated for a line. One thread.
class MetricsFile final : public Observer {
 public:
  /// Opens the file, cut down to the lines of steps that are done (whatever a killed run left after them goes).
  Status started(const StartEvent& start) override;
  Status step(const StepEvent& m) override;
  Status validated(const ValidationEvent& v) override;
  Status written(const TextsEvent& t) override;
  Status saving() override { return file_->sync(); }

 private:
  std::optional<File> file_;
  std::string line_;  ///< keeps its memory
};

/// Returns a text as a line of generated.jsonl has it.
Table written_json(const WrittenText& text);

/// A line for each text that a model has written after a prompt of the recipe's `evaluate`. The file is there where the recipe has one.
class GeneratedFile final : public Observer {
 public:
  Status started(const StartEvent& start) override;
  Status written(const TextsEvent& t) override;
  Status saving() override { return file_ ? file_->sync() : ok(); }

 private:
  std::optional<File> file_;
};

}  // namespace galley
