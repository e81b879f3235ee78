// What a run comes from: everything outside its directory that could change a bit of it. Written down when it begins, compared before it
// continues. Threads are not among it: their number changes no bit.
#pragma once

#include <filesystem>
#include <vector>

#include "host/session/run_directory.hpp"
#include "host/session/study.hpp"

namespace galley {

/// A hash of all that a plugin is: its manifest, its library and its libraries of kernels.
Result<std::string> plugin_hash(const Manifest& manifest);

/// Plugins that are loaded, and their hashes.
Result<std::vector<RunRecord::PluginUsed>> plugins_of(const Study& study);

/// The model's configuration, the tokenizer, small files that strategies read, Galley's own Lua.
Result<std::vector<Origin>> origins_of(const Study& study);
/// The files of the data.
Result<std::vector<Origin>> origins_of(const Study& study, const Source& source);

/// The checks, in the order in which they can be made. Each error (exit code Recipe) names the first thing that has changed and what to do.
///
/// The recipe and the modules that it required, where they still lie where they were; and recipe.lua in the run's directory.
Status check_recipe(const RunRecord& record, const std::filesystem::path& directory);
/// Galley, the machine, the plugins, and what origins_of(study) says.
Status check_origins(const RunRecord& record, const Study& study, const std::filesystem::path& directory);
/// Of these, the model's configuration and the small files that strategies read: for commands that use a run without continuing it. `doing`
/// is what they do: "export".
Status check_files_of_model(const RunRecord& record, const Study& study, const std::filesystem::path& directory, const char* doing);
/// The data.
Status check_data_files(const RunRecord& record, const Study& study, const Source& source, const std::filesystem::path& directory);

}  // namespace galley
