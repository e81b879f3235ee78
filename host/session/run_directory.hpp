// The directory that a run leaves: who may create it, and run.toml, which says what the run is.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// Something outside of the run's directory that its bits depend on.
struct Origin {
  std::string kind;  ///< "model", "data", …
  std::string name;  ///< which one: a file's path
  std::string hash;
  friend bool operator==(const Origin&, const Origin&) = default;
};

/// run.toml. Holds all that `resume` needs, the recipe's text included, so that one rename makes a run.
struct RunRecord {
  bool own = false;              ///< it has this user's mark (mark.hpp); set by open_run()
  std::string version;           ///< Galley's
  std::filesystem::path recipe;  ///< where it was, absolute: relative paths in it start there
  std::string recipe_text;
  struct Module {
    std::string name, path, text;
  };
  std::vector<Module> modules;              ///< that the recipe required: "lib/common.lua", where it was, its text
  std::map<std::string, std::string> sets;  ///< --set
  bool confined = false;                    ///< --confine
  std::filesystem::path working_directory;  ///< where relative --set paths start
  std::string begun;                        ///< when it did, in UTC: 2026-01-31T09:30:00Z; not read again
  std::string command;                      ///< as a shell takes it; "": it was not a command of its own
  std::string device;
  uint64_t seed = 0;
  int64_t steps = 0;
  std::string unit;                 ///< of its losses: "nats a token"
  std::vector<std::string> labels;  ///< by number, where the data has said which there are
  int64_t head_rows = 0;            ///< Program::head_rows, so that no other limit of memory changes sums
  std::string target;               ///< TOML
  std::string machine;              ///< the ISA of the machine that it began on; the target may be another one
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

/// Below a run's directory: the state of its lowest validation loss, with save = { best = true }.
inline constexpr const char* best_folder = "best";

/// Whether create_run would take the directory: it is absent or empty.
Status check_vacant(const std::filesystem::path& directory);

/// Makes a run of an empty or absent directory: run.toml is written beside it, synced, and renamed in as the first file; then recipe.lua.
/// Killed before, nothing or an empty directory is left; killed after, `resume` continues. A directory that is not empty is refused. Where
/// no key can be kept, `unmarked` is told, and the run will be taken for a stranger's.
Status create_run(const std::filesystem::path& directory, const RunRecord& record, const std::function<void(const std::string&)>& unmarked);

/// Takes a run away again that has trained nothing: what create_run wrote, and what beginning to train adds. Does nothing once there is a
/// step or a state.
void discard_run(const std::filesystem::path& directory);

/// Reads run.toml, which has to lie in the directory, and puts recipe.lua back if it is missing.
Result<RunRecord> open_run(const std::filesystem::path& directory);

}  // namespace galley
