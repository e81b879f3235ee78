// Makes the arms of a comparison, each of them a recipe with a study, and its seeds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/session/study.hpp"

namespace galley {

struct Arm {
  std::string name;              ///< a variant's name, or that of a recipe's file without its extension; also the name of a folder
  std::filesystem::path recipe;  ///< as the user typed it
  std::map<std::string, std::string> sets;
  std::vector<std::string> given_uses;  ///< strategies beside the recipe's own: see RecipeInput
  std::shared_ptr<const Study> study;   ///< the study with the first seed, of what is trained; none if the arm cannot work
  std::string refusal;                  ///< why it cannot
  /// What its memory and time at best are those of: of several processes the one that needs the most, else `study`.
  std::shared_ptr<const Study> planned = nullptr;
  int64_t lanes = 0;  ///< that its runs are given; 0: none
};

struct Comparison {
  std::vector<Arm> arms;  ///< the baseline first
  std::vector<int64_t> seeds;
  int64_t turns = 1;  ///< into how many parts each run is cut
  int64_t ranks = 1;  ///< processes for which arms are planned; one trains them, in as many lanes, which leaves the same bytes
  bool sequential = false;
  Margin margin;
  std::optional<Budget> budget;  ///< of seconds: arms are planned with one step until settle_budget() knows how many there are
};

struct CompareOptions {
  StudyOptions study;
  std::vector<int64_t> seeds;  ///< --seeds; none: what the recipe says, or 1 to 5
  int64_t turns = 0;           ///< --turns; 0: what the recipe says, or 4
  std::string margin;          ///< --margin, as margin_named() reads it; "": what the recipe says
};

/// Plans the arms of a recipe that returns compare { … }, or of several that each return recipe { … }. An arm that cannot work is an error
/// that names it; with `Refused::Kept`, it has a refusal instead of a study.
enum class Refused : uint8_t { Error, Kept };
Result<Comparison> read_comparison(const std::vector<std::string>& recipes, const CompareOptions& options,
                                   Refused refused = Refused::Error);

/// Studies an arm with the first of the seeds, and with `sets` added to its own. `options` are those of the comparison, but for arguments.
/// If several processes are to share a run, the arm is planned for the one that needs the most, and studied for the one that trains in
/// their place, which leaves the bytes that they would leave. What is not to be run is studied for options.lanes.rank alone.
Result<Arm> planned_arm(const Arm& arm, const std::map<std::string, std::string>& sets, int64_t seed, const StudyOptions& options);

/// Returns the folder of an arm's run with a seed, below the comparison's directory.
std::filesystem::path run_of(const std::filesystem::path& directory, const Arm& arm, int64_t seed);

/// Returns the error, with the run in which it occurred.
inline Error of_run(const Arm& arm, int64_t seed, Error error) {
  error.cause = "arm '" + arm.name + "', seed " + std::to_string(seed) + ": " + error.cause;
  return error;
}

/// Returns the steps of an arm's run. An arm with epochs has none yet, and is refused.
inline int64_t steps_of(const Arm& arm) { return arm.study->recipe.steps; }
/// Returns the step after which turn `turn` of `turns` ends, turns counted from 0.
inline int64_t end_of_turn(int64_t steps, int64_t turn, int64_t turns) { return steps * (turn + 1) / turns; }

}  // namespace galley
