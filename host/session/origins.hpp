// Records the origins of a run, everything outside its directory that could change a bit of it, when it begins, and compares them before it
// continues. The number of threads is not among them: it changes no bit.
#pragma once

#include <filesystem>
#include <vector>

#include "host/session/run_directory.hpp"
#include "host/session/study.hpp"

namespace galley {

/// Returns a hash of a plugin's manifest, its library and its libraries of kernels.
Result<std::string> plugin_hash(const Manifest& manifest);

/// Returns the plugins that are loaded, with their hashes.
Result<std::vector<RunRecord::PluginUsed>> plugins_of(const Study& study);

/// Returns the model's configuration, the tokenizer, small files that strategies read, and Galley's own Lua.
Result<std::vector<Origin>> origins_of(const Study& study);
/// Returns the files of the data.
Result<std::vector<Origin>> origins_of(const Study& study, const Source& source);

// The checks, in the order in which they can be made. Each error (exit code Recipe) names the first thing that has changed and what to do.

/// Checks the recipe and the modules that it required, if they still lie where they were, and recipe.lua in the run's directory.
Status check_recipe(const RunRecord& record, const std::filesystem::path& directory);
/// Checks Galley, the machine, the plugins, and what origins_of(study) returns.
Status check_origins(const RunRecord& record, const Study& study, const std::filesystem::path& directory);
/// Checks only the model's configuration and the small files that strategies read, for commands that use a run without continuing it.
/// `doing` says what they do: "export".
Status check_files_of_model(const RunRecord& record, const Study& study, const std::filesystem::path& directory, const char* doing);
/// Checks the data.
Status check_data_files(const RunRecord& record, const Study& study, const Source& source, const std::filesystem::path& directory);

}  // namespace galley
