// Decides the verdict of a comparison on each arm, beside the first one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/tools/compare/arms.hpp"
#include "host/tools/compare/results.hpp"
#include "host/tools/compare/statistics.hpp"

namespace galley {

/// Losses of two arms that differ by rounding alone stay within so many times the control's difference; see Verdict::Rounding.
inline constexpr double kBandSlack = 4;
/// A relative difference of losses that any other order of sums in F32 makes.
inline constexpr double kBandFloor = 1e-6;
/// How many times further than the control's furthest last loss the mean of an arm's may be and count as rounding, where seeds agree on it.
inline constexpr double kLeanSlack = 2;

/// Between what was seen and the declaration that it denies.
inline constexpr const char* kBreach = "; BREACH: ";

enum class Verdict {
  Baseline,
  Identical,  ///< with every seed: all losses, and all that is exported, to the byte
  /// With every seed and at every step, losses differ by no more than kBandSlack times what the control's did up to there, and tensors by
  /// no more than kBandSlack times what its did at the end; and seeds do not agree on a side by more than kLeanSlack allows. The control is
  /// the baseline with other rounding errors (control.hpp).
  Rounding,
  Same,       ///< the losses' difference is smaller than the margin (Decision::Word)
  Better,     ///< losses are lower, and it is no matter of chance
  Worse,      ///< higher
  Undecided,  ///< any of these may be true
  Numbers,    ///< fewer than kFewestPairs seeds, or a loss that is not finite: no verdict
};
const char* verdict_name(Verdict verdict);

/// The margin that matters, and what it was made of.
struct JudgedMargin {
  double value = 0;              ///< of losses, in nats; 0: there is none, since training has gained nothing
  std::optional<double> gained;  ///< by how much training made the baseline's loss smaller, mean over the seeds; none: not finite
  std::optional<double> share;   ///< of what was gained; none: it was given in nats
};
/// Gained are the first validation loss, if that is from before the first step, or else the loss of the first step, less the last
/// validation loss, or without validation the mean training loss of the last tenth of the steps.
JudgedMargin margin_of(const Margin& margin, const std::vector<RunResult>& baseline);

struct ArmVerdict {
  Verdict verdict = Verdict::Numbers;
  std::string sentence;
  std::string breach;                                              ///< see breach_of(); the sentence ends with kBreach and this
  double loss = 0;                                                 ///< final training loss, mean over the seeds
  std::optional<double> validation;                                ///< last validation loss, mean over the seeds
  std::optional<Interval> loss_difference, validation_difference;  ///< to the baseline, paired by seed
  std::vector<double> losses, differences;                         ///< by seed: those of the verdict, and less the baseline's
  bool validated = false;                                          ///< these are validation losses
  Decision decision;                                               ///< of these differences
  std::optional<size_t> astray;         ///< the seed, from 0, whose difference is not like the others', and by more than the margin
  int64_t first_step = 0, outside = 0;  ///< the first step of any seed whose bits differ, and that is outside the band; 0: none
  double largest_loss = 0, largest_tensor = 0;
  std::string tensor;
  int64_t other_steps = 0;            ///< the steps of a run, where the baseline's has another number: then none of these five is known
  std::optional<double> seconds;      ///< of a step, median
  std::optional<Interval> ratio;      ///< of the logarithm of its time to the baseline's, paired by turn
  int64_t planned = 0, resident = 0;  ///< bytes
  int64_t skipped = 0;                ///< steps that were not applied, of all seeds

  /// Of which a comparison that looks after each seed is sure.
  bool decided() const { return verdict != Verdict::Undecided && verdict != Verdict::Numbers; }
};

/// `results`: of each arm, by seed. `control`: of the control, by seed; none: there is no band.
Result<std::vector<ArmVerdict>> judge(const Comparison& comparison, const std::vector<std::vector<RunResult>>& results,
                                      const std::vector<RunResult>& control);

}  // namespace galley
