// A recipe as data: what the Lua file returned, checked for form. Strategies' options are checked later against their manifests.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/value.hpp"

namespace galley {

/// One positional entry of the recipe: use "name" { options }.
struct Use {
  std::string name;
  Table options;
  Place place;
};

/// model { path = …, init = "file" | "random" } or model { family = …, config = { … } } (always random).
struct ModelSpec {
  std::filesystem::path path;   ///< empty when a family and a configuration are given; resolved, absolute
  std::string family;           ///< empty: config.json's model_type decides
  Table config;                 ///< the configuration given in the recipe
  bool random = false;          ///< initialize instead of loading
  Place place;
};

/// data.KIND { options }
struct DataSpec {
  std::string kind;             ///< "text", "batch", "random"
  Table options;                ///< option "files" / "path" already resolved to absolute paths (strings)
  Place place;
};

struct Recipe {
  std::filesystem::path path;                ///< absolute
  std::string text;                          ///< the file's bytes, copied into the run directory
  std::map<std::string, std::string> sets;   ///< --set name=value as given, needed to read the recipe again on resume
  ModelSpec model;
  DataSpec data;
  std::optional<int64_t> batch;              ///< rows of a micro-batch; data.batch brings its own
  std::optional<int64_t> length;             ///< positions of a row
  int64_t steps = 0;
  uint64_t seed = 1;
  int64_t validate_every = 0;                ///< 0: never
  int64_t save_every = 0;                    ///< 0: only at the end
  int64_t save_keep = 2;                     ///< how many resume states stay
  bool save_final = true;                    ///< false: nothing is saved at the end
  int64_t head_rows = 0;                     ///< rows of one chunk of the head and loss; 0: chosen by the host
  std::vector<Use> uses;
};

struct RecipeOptions {
  std::map<std::string, std::string> sets;
  double seconds = 10;                       ///< Lua's time, all of it
  size_t bytes = 512u << 20;                 ///< Lua's memory
};

/// Runs the recipe in the sandbox and closes Lua. Errors carry file:line and exit code Recipe.
Result<Recipe> read_recipe(const std::filesystem::path& path, const RecipeOptions& options);

}  // namespace galley
