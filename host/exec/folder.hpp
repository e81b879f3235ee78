// Creates folders that survive a crash as the files in them do.
#pragma once

#include <filesystem>

#include "host/base/result.hpp"

namespace galley {

/// Creates the folder and those above it that are missing, and syncs the parent of each that it creates. A folder that exists is fine.
Status make_directories(const std::filesystem::path& path);

}  // namespace galley
