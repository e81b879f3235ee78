// Reports a comparison for people and for programs.
#pragma once

#include <string>
#include <vector>

#include "host/tools/compare/verdict.hpp"

namespace galley {

/// Returns a table of 80 columns at most, and a sentence for each arm, with the losses by seed; a breach in `red` … `plain`.
std::string compare_table(const Comparison& comparison, const std::vector<ArmVerdict>& verdicts, const char* red = "",
                          const char* plain = "");

/// Under a budget: the steps of each arm, in a line. "" without one.
std::string budget_text(const Comparison& comparison);
/// What ended a comparison that looks after each seed, in a line.
std::string looks_text(size_t used, size_t all);

/// compare.json. All but "seconds", "ratio" and "resident" is the same whenever and however often the runs were interrupted.
std::string compare_json(const Comparison& comparison, const std::vector<std::vector<RunResult>>& results,
                         const std::vector<ArmVerdict>& verdicts);

/// Returns the plans of all arms beside each other; for an arm that cannot work, the reason. Of several processes, says which.
std::string compare_plans(const Comparison& comparison);
/// Of several processes: what of the table is theirs, and what is that of the one that has trained in their place. "" of one.
std::string trained_text(const Comparison& comparison);

/// A condition that --expect gave, such as "lean: memory <= 0.5 plain".
struct Expectation {
  std::string text, arm, what;
  bool at_most = true;
  double factor = 0;
  std::string other;  ///< the arm whose number is multiplied by the factor; "": the factor is the number
};
/// "ARM: identical", "ARM: rounding" (identical is, too), "ARM: same" (these are, too; within the margin), "ARM: better", "ARM: worse", or
/// "ARM: WHAT <= NUMBER [ARM]", with >= as well; WHAT is memory, resident, seconds, loss or validation. Exit code Recipe.
Result<Expectation> parse_expectation(const std::string& text, const Comparison& comparison);
/// "" where it holds, else what was seen instead.
std::string unmet(const Expectation& expectation, const Comparison& comparison, const std::vector<ArmVerdict>& verdicts);

}  // namespace galley
