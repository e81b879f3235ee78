// A run that is there already: studied again from what its directory says.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "host/session/run_directory.hpp"
#include "host/session/session.hpp"

namespace galley {

/// The record of a new run; `data` is what people want to read of what was found.
Result<RunRecord> record_of(const Study& study, const std::string& device, const Source& source, std::vector<RunRecord::DataUsed> data);

struct Run {
  RunRecord record;
  std::unique_ptr<Study> study;
};

/// Studies a run with its own recipe text, modules, arguments, device and target, so that the same program comes out. Of `options` count
/// the plugin path, the purpose, who is warned, and how far the run is trusted: see confine_run(). Its plugins have to be on the plugin
/// path: where the record says that they were proves nothing. Unless the run is to be continued, which checks more, the files that decide
/// which model it trains have to be as they were.
Result<Run> study_run(const std::filesystem::path& directory, StudyOptions options);

/// Confines a run that has not this user's mark, and any run with --confine, to its own directory: sets `within`, unless it is set or
/// --unconfined is given. `warn` is told of a stranger's. For whoever reads files of a run before study_run().
void confine_run(const RunRecord& record, const std::filesystem::path& directory, StudyOptions* options);

/// The state that had the lowest validation loss, of a run that keeps it; none where no loss was finite. One that was there and is lost is an
/// error: another state would pass for it.
Result<std::optional<std::filesystem::path>> find_best(const std::filesystem::path& directory, const ValidationRecord& said);

/// The state whose weights stand for the run: its best one where the recipe keeps it, else its newest; none where it has saved nothing.
Result<std::optional<std::filesystem::path>> find_weights(const Recipe& recipe, const std::filesystem::path& directory);

/// Of a run without a state.
Error nothing_saved(const std::filesystem::path& directory);

/// Puts them into a session.
Status load_weights_of_run(Session& session, const std::filesystem::path& directory);

}  // namespace galley
