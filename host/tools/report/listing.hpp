// The commands `galley plugins`, which lists plugins and prints help made from their manifests, and `galley recipe`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/plugins/loader.hpp"

namespace galley {

/// Prints all plugins as a table, or everything about one plugin or strategy.
Status print_plugins(const std::vector<std::filesystem::path>& plugin_path, const std::string& name, bool json);

/// Prints the same as JSON, with the contracts of ops, for one name or for all. Loads libraries. [main-thread]
Status print_plugins_json(Plugins& plugins, const std::string& name);

/// `galley recipe [NAME]`: every name that a recipe knows, with what it takes, its default and a sentence; or those of one: "data.text",
/// "cosine". From the declarations by which recipes are read.
Status print_recipe(const std::string& name);

}  // namespace galley
