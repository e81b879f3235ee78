// Plans everything that a recipe offers by one_of { … }: what fits, how fast it would be, and what it costs in exactness.
//
// Combinations differ in what they compute (an adapter or all parameters, BF16 or 4 bit, one rank or another), or only in how: in memory
// and speed. Which of the first kind is wanted, nobody but the recipe's author can say: what a one_of offers first. Of the second kind the
// fastest is taken.
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
  std::map<int, size_t> choices;  ///< see RecipeInput
  std::vector<std::string> said;  ///< what is chosen, as it is written, one for each one_of of FitResult::offers; "": it is not asked for
  std::string refusal;            ///< why it cannot work; "": it can
  bool too_large = false;         ///< for the target itself: nothing more is known of it
  int64_t bytes = 0;              ///< planned, of the memory that computes; of several processes of the one that needs the most
  std::map<std::string, int64_t> owners;  ///< of these, at the peak: weights, states, …
  double seconds = 0;                     ///< of a step, as the target says
  double speed = 0;                       ///< positions a second, of all processes
  bool timed = true;                      ///< exchanges are in these: there are none, or a link of the target joins the processes
  Exactness exactness = Exactness::Bits;  ///< the least exact of its strategies
  double loss = 0;                        ///< nats by which strategies have measured the loss to be higher, all together
  std::string result;                     ///< what decides what it computes, beside rounding: equal texts, equal results
  bool fits = false;                      ///< it can work, and takes no more than the memory
  bool best = false;                      ///< of those with the same result, the fastest that fits, or the one that takes least
};

struct FitResult {
  std::vector<std::string> offers;   ///< what each one_of stands for: the entry's name, its strategies' names, or its line
  std::vector<FitVariant> variants;  ///< by bytes, refused ones last
  size_t chosen = SIZE_MAX;          ///< what a person would take; none fits
  int64_t ranks = 1;                 ///< processes that share a run
};

/// Plans every combination of what the recipe offers, on all threads; no device is opened. `memory`: bytes; of several processes those of
/// each (study_of_most()). Of those that fit, one is chosen: in every one_of whose items compute different things the earliest that there
/// is, a one_of further up first; of these the fastest; and of those that are as fast within kAsFast what other one_of offer first. `after`
/// is told how many of how many are planned. [main-thread]
Result<FitResult> fit(const std::filesystem::path& recipe, const StudyOptions& options, int64_t memory,
                      const std::function<void(size_t done, size_t all)>& after = {});

/// Estimates are no more exact than this share.
inline constexpr double kAsFast = 0.01;

enum class Rows : uint8_t { Best, All };
/// A table of what is best, or of all that can work, in lines of at most `columns` where there are not too many offers, and what was left
/// out.
std::string fit_table(const FitResult& result, int64_t memory, size_t columns, Rows rows = Rows::Best);

/// The recipe with what was chosen written in the place of every one_of, under a comment that says what it takes, and of how many
/// processes.
Result<std::string> fitted_recipe(const std::filesystem::path& recipe, const FitVariant& variant, int64_t memory, int64_t ranks = 1);

}  // namespace galley
