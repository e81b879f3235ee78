// A run that is there already: studied again from what its directory says.
#pragma once

#include <filesystem>
#include <memory>

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
/// the plugin path, the purpose, and who is warned. A plugin is taken from where it was only if check_plugin_folder() (origins.hpp) agrees.
Result<Run> study_run(const std::filesystem::path& directory, StudyOptions options);

/// Puts the run's weights into a session that evaluates or samples: those of its best state where the recipe keeps it, else its newest.
Status load_newest(Session& session, const std::filesystem::path& directory);

}  // namespace galley
