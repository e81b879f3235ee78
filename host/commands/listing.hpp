// `galley plugins`: what there is, and help made from manifests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// All plugins in a table, or everything about one plugin or strategy. Loads no library.
Status print_plugins(const std::vector<std::filesystem::path>& plugin_path, const std::string& name);

}  // namespace galley
