// Makes the data of a page about a plan, runs or a comparison.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/session/study.hpp"

namespace galley {

/// The most points of a run's curve in a page; in a longer run each is the mean of several steps.
inline constexpr size_t kMostPoints = 20000;

/// Returns what `galley plan --html` shows. `recipe` is as the user typed it; `change` is what change_json() returns for a locked plan, or
/// nil.
Value plan_page(const Study& study, const std::filesystem::path& recipe, Value change);

/// A variant of a comparison: its plan, or why there is none.
struct PlannedVariant {
  std::string name;
  const Study* study = nullptr;
  std::string refusal;
};
/// Returns the same for a recipe's variants, the baseline first: what each takes, and a map of each that has a plan.
Value variants_page(const std::vector<PlannedVariant>& variants, const std::filesystem::path& recipe);

/// Returns what `galley report` shows of the directories of runs, or of a single comparison. A directory that is neither, a comparison
/// beside others, and a run without steps are exit code Recipe; a broken file of a run is exit code Failed. Runs are planned again by
/// study_run(), with the plugin path and the warnings of `options`; if that fails, the page says why in the map's place.
Result<Value> report_page(const std::vector<std::filesystem::path>& directories, const StudyOptions& options);

}  // namespace galley
