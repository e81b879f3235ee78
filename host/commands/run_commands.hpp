// The commands that make runs, evaluate them and export what they have made: train, resume, eval, export, gradients.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "host/base/new_file.hpp"
#include "host/commands/cli.hpp"
#include "host/proofs/proofs.hpp"
#include "host/session/run_directory.hpp"
#include "host/session/session.hpp"

namespace galley {

/// Returns the options that --set, --use, --confine, --plugin-path, --device, --target, --memory, --lanes, --ranks and --rank set.
Result<StudyOptions> study_options(const CommandLine& a);

/// Opens the data and shows progress on stderr. A signal ends it; unfinished files are removed.
Result<std::unique_ptr<Source>> open_source_shown(const Study& study);

/// Returns what was found in the data, for the record of a run.
std::vector<RunRecord::DataUsed> data_used(const Source& source);

/// Tells people what they should change in the data.
void warn_of(const Source& source, const std::function<void(const std::string&)>& warn);

/// Returns how many steps an epoch has, and how many epochs the run; "" if the data has no epochs.
std::string epochs_of(const Study& study, const Source& source);

/// Runs reference mode if --reference asks for it, and prints and writes what was compared once the command has run. Must not move once
/// options() has been called.
class ReferenceShown {
 public:
  /// Opens the file of --reference-out, so that one that cannot be written is found before the command runs.
  static Result<ReferenceShown> open(const CommandLine& a);
  /// Returns the options of a session that fills the report.
  SessionOptions options() { return {.watching = watching()}; }
  /// Returns what makes the watches of a run, with poison mode or without it. `party`: of several processes.
  std::function<Watching(Plugins&)> watching(Poison poison = Poison::No, Party* party = nullptr);
  Status finish(Status ran);

 private:
  ReferenceShown(bool asked, std::optional<NewFile> file) : asked_(asked), file_(std::move(file)) {}
  bool asked_;
  std::optional<NewFile> file_;
  ReferenceReport report_;
};

Status command_train(const CommandLine& a);
Status command_resume(const CommandLine& a);
Status command_eval(const CommandLine& a);
Status command_export(const CommandLine& a);
Status command_gradients(const CommandLine& a);

}  // namespace galley
