// Trains the runs of a comparison: arms take turns, each in a process of its own that trains or resumes an ordinary run up to the turn's
// last step. So a noisy machine is fair to all, the memory is that of one arm, an arm that crashes harms no other, and what is killed
// continues where it was, to the same bits.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "host/tools/compare/arms.hpp"

namespace galley {

struct TurnOptions {
  std::filesystem::path program;         ///< this one
  std::vector<std::string> train_words;  ///< options of `galley train` that all arms have: --device cpu, …
  std::vector<std::string> resume_words;
  std::function<bool()> stop = [] { return false; };  ///< asked while a process runs; true: it is told to save and end
  /// Asked after all runs of a seed: of how many seeds, from the first one on, there are all runs. True: no other seed is trained.
  std::function<Result<bool>(size_t seeds)> decided = [](size_t) -> Result<bool> { return false; };
  /// Before each turn: how many turns of all are done.
  std::function<void(int64_t done, int64_t all, const Arm& arm, int64_t seed)> begins = {};
};

/// Trains all runs that are not complete, below `directory`, and keeps those that are. A folder that is the run of another recipe is an
/// error. A run that fails is an error that names arm and seed, with the run's own words.
Status run_turns(const Comparison& comparison, const std::filesystem::path& directory, const TurnOptions& options);

}  // namespace galley
