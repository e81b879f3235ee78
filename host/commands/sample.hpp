// `galley sample`: text from a run's model; and how a run that is there is studied again.
#pragma once

#include <filesystem>
#include <memory>

#include "host/commands/cli.hpp"
#include "host/commands/run.hpp"

namespace galley {

/// The study of a run directory: its own recipe text, arguments, plugins and target, so that the same program comes out.
Result<std::unique_ptr<Study>> study_run(const std::filesystem::path& directory, Purpose purpose);

/// Puts the run's newest weights into a session whose program trains nothing.
Status load_newest(const Study& study, const std::filesystem::path& directory, Executor& executor);

Status command_sample(const CommandLine& arguments);

}  // namespace galley
