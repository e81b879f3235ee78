// Reports how a model's labels compare with those of the data, for people and for programs.
#pragma once

#include <string>

#include "host/base/value.hpp"
#include "host/recipe/recipe.hpp"
#include "host/session/scores.hpp"

namespace galley {

/// Returns accuracy and F1, then a table of labels; of many labels only those that are confused the most.
std::string scores_text(const Scores& scores, const Learning& learning);
/// Returns "labels", and "confusion": for each label of the data, how often the model gave each; if a text may have several labels,
/// "counts" of each instead.
Table scores_json(const Scores& scores, const Learning& learning);

}  // namespace galley
