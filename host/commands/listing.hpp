// `galley plugins`: lists plugins and prints help made from their manifests.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Prints all plugins as a table, or everything about one plugin or strategy. Loads no library.
Status print_plugins(const std::vector<std::filesystem::path>& plugin_path, const std::string& name);

}  // namespace galley
