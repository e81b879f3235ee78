// Writes and checks RUN/result.toml: checksums of what a run has left when it was over, so that a comparison of runs can tell whether it is
// still there. They guard against accidents and mix-ups, not against somebody who computes them anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "host/session/run_directory.hpp"

namespace galley {

inline constexpr const char* kResultFile = "result.toml";

/// Writes the checksums of a run of this recipe: of its metrics, and of the files of tensors that it has exported (Executor::exported()).
Status write_result(const std::filesystem::path& directory, const RecipeInput& recipe, const std::map<std::string, uint64_t>& exported);

/// Reads all of these files. The error (exit code Failed) names the first that is not as the run has left it.
Status check_result(const std::filesystem::path& directory, const RunRecord& record);

}  // namespace galley
