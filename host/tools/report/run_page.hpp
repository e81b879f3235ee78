// The data of a page: of a plan, of runs, of a comparison.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/base/value.hpp"
#include "host/session/study.hpp"

namespace galley {

/// The most points that a curve of a run has in a page; of a longer run each is the mean of several steps.
inline constexpr size_t kMostPoints = 20000;

/// What `galley plan --html` shows. `recipe` as the user typed it. `change`: what change_json() says of a locked plan, or nil.
Value plan_page(const Study& study, const std::filesystem::path& recipe, Value change);

/// A variant of a comparison: its plan, or why there is none.
struct PlannedVariant {
  std::string name;
  const Study* study = nullptr;
  std::string refusal;
};
/// The same of a recipe's variants, the baseline first: what each takes, and a map of each that has a plan.
Value variants_page(const std::vector<PlannedVariant>& variants, const std::filesystem::path& recipe);

/// What `galley report` shows of the directories of runs, or of a single comparison's. A directory that is neither, a comparison beside
/// others, and a run without steps are exit code Recipe; a file of a run that is broken is exit code Failed. Runs are planned again as
/// study_run() does, with the plugin path and the warnings of `options`; where that fails, the page says why in the map's place.
Result<Value> report_page(const std::vector<std::filesystem::path>& directories, const StudyOptions& options);

}  // namespace galley
