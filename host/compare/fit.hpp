// All that a recipe offers by one_of { … }, planned: which of it fits, how fast it would be, and what it costs in exactness.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "host/base/result.hpp"
#include "host/plugins/manifest.hpp"
#include "host/session/study.hpp"

namespace galley {

/// One way to choose.
struct FitVariant {
  std::map<int, size_t> choices;  ///< see choices_text()
  std::vector<std::string> said;  ///< what is chosen, as it is written, one for each one_of of FitResult::offers; "": it is not asked for
  std::string refusal;            ///< why it cannot work; "": it can
  bool too_large = false;         ///< for the target itself: nothing more is known of it
  int64_t bytes = 0;              ///< planned, of the memory that computes
  std::map<std::string, int64_t> owners;  ///< of these, at the peak: weights, states, …
  double seconds = 0;                     ///< of a step, as the target says
  double speed = 0;                       ///< positions a second
  Exactness exactness = Exactness::Bits;  ///< the least exact of its strategies
  bool fits = false;                      ///< it can work, and takes no more than the memory
  bool best = false;                      ///< on the Pareto front: no other one is as good in all of bytes, speed and exactness
};

struct FitResult {
  std::vector<std::string> offers;   ///< what each one_of stands for: the entry's name, its strategies' names, or its line
  std::vector<FitVariant> variants;  ///< by bytes, refused ones last
  size_t chosen = SIZE_MAX;          ///< the fastest one that fits; none
};

/// Plans every combination of what the recipe offers, on all threads; no device is opened. `memory`: bytes.
/// `after` is told how many of how many are planned. [main-thread]
Result<FitResult> fit(const std::filesystem::path& recipe, const StudyOptions& options, int64_t memory,
                      const std::function<void(size_t done, size_t all)>& after = {});

/// A table of the Pareto front, in lines of at most `columns` where there are not too many offers, and what was left out.
std::string fit_table(const FitResult& result, int64_t memory, size_t columns);

/// The recipe with what was chosen written in the place of every one_of, under a comment that says what it takes.
Result<std::string> fitted_recipe(const std::filesystem::path& recipe, const FitVariant& variant, int64_t memory);

}  // namespace galley
