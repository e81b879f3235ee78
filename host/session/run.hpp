// Studies a run that is there already, from what its directory records, to resume, sample or export it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "host/session/run_directory.hpp"
#include "host/session/session.hpp"

namespace galley {

/// Makes the record of a new run; `data` is what was found in the data, for people to read.
Result<RunRecord> record_of(const Study& study, const std::string& device, const Source& source, std::vector<RunRecord::DataUsed> data);

struct Run {
  RunRecord record;
  std::unique_ptr<Study> study;
};

/// Studies a run with its own recipe text, modules, arguments, device and target, so that the same program results. Of `options` it uses
/// the plugin path, the purpose, `warn`, `longer`, and how far the run is trusted: see confine_run(). The run's plugins have to be on the plugin
/// path: a path in the record proves nothing. Unless the run is to be continued, which checks more, the files that decide which model it
/// trains have to be as they were.
Result<Run> study_run(const std::filesystem::path& directory, StudyOptions options);

/// Confines a run without this user's mark, and any run with --confine, to its own directory: sets `within`, unless it is set or
/// --unconfined is given. `warn` is called for a stranger's run. Call it before reading files of a run other than by study_run().
void confine_run(const RunRecord& record, const std::filesystem::path& directory, StudyOptions* options);

/// Returns the state with the lowest validation loss, if the run keeps it; nothing if no loss was finite. A state that was there and is
/// lost is an error, because another one would pass for it.
Result<std::optional<std::filesystem::path>> find_best(const std::filesystem::path& directory, const ValidationRecord& said);

/// Returns the state with the run's weights: the best one if the recipe keeps it, else the newest; nothing if none was saved.
Result<std::optional<std::filesystem::path>> find_weights(const Recipe& recipe, const std::filesystem::path& directory);

/// Makes the error for a run without a state.
Error nothing_saved(const std::filesystem::path& directory);

/// Loads the weights of find_weights() into a session.
Status load_weights_of_run(Session& session, const std::filesystem::path& directory);

}  // namespace galley
