// Doing what a study has planned: training, evaluating, one window's gradients, sampling.
#pragma once

#include <csignal>
#include <filesystem>
#include <string>

#include "host/commands/study.hpp"
#include "host/exec/executor.hpp"
#include "host/report/run_directory.hpp"

namespace galley {

/// A machine with the program loaded and the data open. Owns the executor; the study outlives it.
struct Session {
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Source> source;
};

/// While it lives, SIGINT and SIGTERM ask for the end of the run instead of ending the process. One at a time. [main-thread]
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static bool asked();

 private:
  struct sigaction interrupt_ = {}, terminate_ = {};
};

/// Opens the data, preparing it where that has not been done yet. No device is opened. SIGINT and SIGTERM end it where StopSignals lives.
Result<std::unique_ptr<Source>> open_source(const Study& study);

/// Checks files, opens the device, loads weights and data. Without a source (null) there is none.
Result<Session> open_session(const Study& study, std::unique_ptr<Source> source, Poison poison);

/// Trains from where the directory's newest state is, or from the begin, to the recipe's last step, and saves. SIGINT and SIGTERM finish the step, save, and end with
/// exit code Interrupted and how to go on. Without a source (null) opens it, where there is something left to do. [main-thread]
Status train(const Study& study, std::unique_ptr<Source> source, const std::filesystem::path& directory, Poison poison);

/// Mean loss over the validation rows, as they are.
Result<double> validation_loss(const Study& study, Session& session);

/// loss, grad.*, and logits when the study kept them, into a safetensors file (written aside, renamed).
Status write_gradients(const Study& study, const std::filesystem::path& file);

/// The record of a new run.
Result<RunRecord> record_of(const Study& study, const StudyOptions& options, const Source& source);

}  // namespace galley
