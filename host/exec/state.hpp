// Saves and loads resume states (checkpoints): what a run needs to continue, bit for bit.
//
//   state/step-00000080/state.safetensors    every tensor of Program::resume under its stable name
//   state/step-00000080/state.toml           where the run was, what made it, a checksum for each tensor and, in its last line, one for the
//                                            lines before
//
// A state is written aside in state/.tmp-step-…, synced, renamed, and its folder synced. Only then older ones are removed, state.toml
// first: a folder without it is no state. So at any instant the newest folder with a state.toml is whole, and clean_states() can tell the
// rest. These files hold no times and no paths: the same run leaves the same bytes.
//
// The file's layout depends on the whole tensors alone: of several processes each writes and reads the parts that it has, and the one that
// leads does the rest. One run at a time works on a folder of states.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/exec/machine.hpp"
#include "host/exec/together.hpp"
#include "host/plan/program.hpp"

namespace galley {

/// A plugin whose code the run's states depend on.
struct PluginStamp {
  std::string id;
  std::string version;
  int64_t state_version = 1;
  friend bool operator==(const PluginStamp&, const PluginStamp&) = default;
};

/// The results of a run's validations, so that a resumed run decides as one that was never interrupted.
struct ValidationRecord {
  int64_t best_step = 0;  ///< the step with the lowest loss; 0: there was none
  double best = 0;
  double reference = 0;  ///< the last loss that was lower than the one before it by more than `min_delta`
  int64_t without = 0;   ///< validations since then
  friend bool operator==(const ValidationRecord&, const ValidationRecord&) = default;
};

/// Everything in a state that is no tensor.
struct StateInfo {
  // Where the run was.
  int64_t attempted = 0;  ///< steps done; the next one is attempted + 1
  int64_t applied = 0;
  int64_t next_window = 0;  ///< the data's cursor
  ValidationRecord validation;
  std::vector<std::string> without_gradient;  ///< Proof::without_gradient: usually nothing
  std::string ended;                          ///< the strategy that has ended the run, and why; "": none
  // What made it. Threads are not here: they do not change a byte of any state.
  std::string device;     ///< Target::device
  std::string isa;        ///< kernels of another level round differently
  std::string products;   ///< Target::products: other instructions round differently
  int64_t head_rows = 0;  ///< Program::head_rows: sums depend on it
  int64_t lanes = 1;      ///< Program::lanes: so do they on this
  uint64_t data = 0;      ///< Source::fingerprint
  std::string recipe;     ///< a hash
  std::vector<PluginStamp> plugins;
  std::map<std::string, uint64_t> weights;  ///< checksums of the weights that the run began with, by name
  friend bool operator==(const StateInfo&, const StateInfo&) = default;
};

/// Synchronizes, saves the tensors as they are now as step info.attempted, and then removes all but the newest `keep` (>= 1) states. A step
/// that is saved already stays as it is: it holds the same bytes. On an error (a full disk) nothing is lost: what was written of this state
/// is removed, the others stay.
Status save_state(const std::filesystem::path& states, int64_t keep, const StateInfo& info, const Program& program, Machine& machine,
                  const Together& together = {});

/// Returns the newest state in the folder; nothing if there is no folder or no state in it. Changes nothing.
Result<std::optional<std::filesystem::path>> find_latest(const std::filesystem::path& states);

/// Returns the step of a state by its folder's name; −1 if that is not the name of a state.
int64_t step_of(const std::filesystem::path& state);

/// Removes what a killed save has left: half-written states, half-removed ones, and all but the newest `keep`.
Status clean_states(const std::filesystem::path& states, int64_t keep);

/// Reads state.toml of one state. A newer format, a missing key or a wrong checksum is an error, exit code Failed.
Result<StateInfo> read_state(const std::filesystem::path& state);

/// Checks whether a run that is `now` (positions aside) can continue from `saved`: device, ISA, recipe, data, first weights, plugins and
/// the versions of their states. The error (exit code Recipe) names the first that differs, with both values. Versions of plugins
/// themselves may differ.
Status check_state(const StateInfo& saved, const StateInfo& now, const std::filesystem::path& state);

/// Checks only the weights that the run began with.
Status check_weights(const StateInfo& saved, const StateInfo& now, const std::filesystem::path& state);

enum class StateTensors : uint8_t {
  All,  ///< the program keeps exactly the state's tensors: a run continues
  Some  ///< the program may keep fewer: to evaluate or sample it has weights and no optimizer
};

/// Reads the program's tensors into the machine. Must be called after `load` ran. Missing or (All) unexpected tensors, other shapes and
/// wrong checksums are errors that name them; the run cannot continue then.
Status load_state(const std::filesystem::path& state, const Program& program, Machine& machine, StateTensors tensors = StateTensors::All,
                  const Together& together = {});

}  // namespace galley
