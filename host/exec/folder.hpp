// Creates folders that survive a crash as the files in them do.
#pragma once

#include <filesystem>

#include "host/base/result.hpp"

namespace galley {

/// Returns the absolute path of a folder, without a slash at its end.
Result<std::filesystem::path> absolute_folder(const std::filesystem::path& given);

/// Creates the folder and those above it that are missing, and syncs the parent of each that it creates. A folder that exists is fine.
Status make_directories(const std::filesystem::path& path);

}  // namespace galley
