// Turns a budget in seconds into steps of each arm. Schedules have to know the number before the first step, and a comparison that was
// interrupted has to say the same in the end. So the number is found once, before the runs, and written down.
#pragma once

#include <filesystem>

#include "host/tools/compare/turns.hpp"

namespace galley {

/// Steps and turns of an arm's trial run: of each turn, the first step is not counted.
inline constexpr int64_t kTrialSteps = 16, kTrialTurns = 4;

/// Gives each arm the fewest steps that take the comparison's seconds, by the median time of a step in trial runs of the first seed, which
/// take turns as the runs do. The times are in DIR/budget.json from then on: an arm that is found there is not measured again, and has the
/// same steps whenever the comparison goes on. Trial runs are below DIR/trial, without validation or a model. Does nothing to a
/// comparison without such a budget.
Status settle_budget(Comparison& comparison, const std::filesystem::path& directory, const StudyOptions& study, const TurnOptions& turns);

}  // namespace galley
