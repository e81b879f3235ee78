// Creates and opens the directory of a run. Its file run.toml records what the run is.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/recipe/recipe.hpp"

namespace galley {

/// Something outside of the run's directory that its bits depend on.
struct Origin {
  std::string kind;  ///< "model", "data", …
  std::string name;  ///< which one: a file's path
  std::string hash;
  friend bool operator==(const Origin&, const Origin&) = default;
};

/// The contents of run.toml: all that `resume` needs, the recipe's text included, so that one rename makes a run.
struct RunRecord {
  bool own = false;                 ///< it has this user's mark (mark.hpp); set by open_run()
  std::string version;              ///< Galley's version
  std::filesystem::path recipe;     ///< the recipe's absolute path: relative paths in it start there
  RecipeInput input;                ///< by which it is read again, but for the library and choices
  std::string begun;                ///< the time when the run began, in UTC: 2026-01-31T09:30:00Z; not read again
  std::string command;              ///< the command line as a shell takes it; "": it was not a command of its own
  std::filesystem::path continues;  ///< the run that it went on with, absolute; "": it began anew
  std::string device;
  uint64_t seed = 0;
  int64_t steps = 0;
  std::string unit;                 ///< the unit of its losses: "nats a token"
  std::vector<std::string> labels;  ///< names of labels by number, if they come from the data
  int64_t lanes = 1;                ///< Program::lanes
  int64_t head_rows = 0;            ///< Program::head_rows, so that another limit of memory does not change sums
  std::string target;               ///< the target as TOML
  std::string machine;              ///< the ISA of the machine on which it began; the target may be another one
  struct PluginUsed {
    std::string id, version;
    int64_t state_version = 1;
    std::string folder;
    std::string hash;  ///< plugin_hash() (origins.hpp)
  };
  std::vector<PluginUsed> plugins;
  std::vector<std::string> kernels;  ///< "OP: KERNEL (PLUGIN)"; not read again
  struct StrategyUsed {
    std::string name, options;  ///< options resolved, as JSON
  };
  std::vector<StrategyUsed> strategies;
  struct DataUsed {
    std::string kind;
    std::vector<std::pair<std::string, int64_t>> facts;
  };
  std::vector<DataUsed> data;  ///< what was found in it; not read again
  std::vector<Origin> origins;
};

/// The folder below a run's directory with the state of its lowest validation loss, with save = { best = true }.
inline constexpr const char* best_folder = "best";

/// Checks that create_run would take the directory: it is absent or empty.
Status check_vacant(const std::filesystem::path& directory);

/// Makes a run of an empty or absent directory: run.toml is written beside it, synced, and renamed in as the first file; then recipe.lua.
/// If it is killed before, nothing or an empty directory is left; if after, `resume` continues. A directory that is not empty is refused.
/// If no key can be kept, `unmarked` is called, and the run will be taken for a stranger's.
Status create_run(const std::filesystem::path& directory, const RunRecord& record, const std::function<void(const std::string&)>& unmarked);

/// Removes a run that has trained nothing: what create_run wrote, and what beginning to train adds. Does nothing once there is a step or a
/// state.
void discard_run(const std::filesystem::path& directory);

/// Reads run.toml, which has to lie in the directory, and puts recipe.lua back if it is missing.
Result<RunRecord> open_run(const std::filesystem::path& directory);

}  // namespace galley
