#include "host/tools/compare/budget.hpp"

#include <cmath>

#include "host/base/json.hpp"
#include "host/base/new_file.hpp"
#include "host/tools/compare/results.hpp"
#include "host/tools/compare/statistics.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// Seconds of a step by arm, as budget.json holds them: {"seconds_of_a_step": {"plain": 0.0123}}.
Result<std::map<std::string, double>> read_times(const fs::path& file) {
  std::map<std::string, double> out;
  std::error_code error;
  if (!fs::exists(file, error)) return out;
  const Value document = TRY(read_json(file));
  const auto* times = document.field<Table>("seconds_of_a_step");
  if (!times) return run_error(file.string() + ": it has no 'seconds_of_a_step'", "remove it: trial runs measure again");
  for (const auto& [arm, value] : *times)
    if (double seconds = 0; value.number(&seconds) && seconds > 0) out[arm] = seconds;
  return out;
}

Status write_times(const fs::path& file, const std::map<std::string, double>& times) {
  Table out;
  for (const auto& [arm, seconds] : times) out[arm] = Value(seconds);
  return write_atomic(file, to_json(Value(Table{{"seconds_of_a_step", Value(std::move(out))}}), 2) + "\n");
}

/// Trains trial runs of the arms that have no time yet.
Status measure(const Comparison& comparison, const fs::path& directory, const StudyOptions& study, const TurnOptions& turns,
               std::map<std::string, double>& times) {
  Comparison trials;
  trials.seeds = {comparison.seeds.front()};
  trials.turns = kTrialTurns;
  StudyOptions options = study;
  options.warn = {};  // of schedules of a run so short
  for (const Arm& arm : comparison.arms) {
    if (times.contains(arm.name)) continue;
    Arm& trial = trials.arms.emplace_back(arm);
    trial.sets.erase("budget");
    trial = TRY(planned_arm(trial, {{"trial", std::to_string(kTrialSteps)}}, trials.seeds.front(), options));
  }
  if (trials.arms.empty()) return ok();
  TRY_STATUS(run_turns(trials, directory / "trial", turns));
  for (const Arm& trial : trials.arms) {
    const RunResult run = TRY(read_result(run_of(directory / "trial", trial, trials.seeds.front())));
    std::vector<double> medians;
    for (const auto& seconds : run.turn_seconds(kTrialTurns))
      if (seconds) medians.push_back(*seconds);
    const auto seconds = median(medians);
    if (!seconds || !(*seconds > 0))
      return run_error(run.directory.string() + ": the trial run has no times of steps", "remove the folder");
    times[trial.name] = *seconds;
  }
  return write_times(directory / "budget.json", times);
}

}  // namespace

Status settle_budget(Comparison& comparison, const fs::path& directory, const StudyOptions& study, const TurnOptions& turns) {
  if (!comparison.budget || !(comparison.budget->seconds > 0)) return ok();
  std::map<std::string, double> times = TRY(read_times(directory / "budget.json"));
  TRY_STATUS(measure(comparison, directory, study, turns, times));
  for (Arm& arm : comparison.arms) {
    const double steps = std::ceil(comparison.budget->seconds / times.at(arm.name));
    if (steps > static_cast<double>(kMostSteps))
      return recipe_error("arm '" + arm.name + "': so many seconds are more than " + std::to_string(kMostSteps) + " steps",
                          "give the comparison a smaller budget");
    arm = TRY(
        planned_arm(arm, {{"budget", std::to_string(std::max<int64_t>(1, static_cast<int64_t>(steps)))}}, comparison.seeds.front(), study));
  }
  return ok();
}

}  // namespace galley
