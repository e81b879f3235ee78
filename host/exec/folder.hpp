// Folders that survive what files in them survive.
#pragma once

#include <filesystem>

#include "host/base/result.hpp"

namespace galley {

/// Creates the folder and those above it that are missing, and syncs the parent of each one created. One that is there is fine.
Status make_directories(const std::filesystem::path& path);

}  // namespace galley
