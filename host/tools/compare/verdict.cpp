#include "host/tools/compare/verdict.hpp"

#include <algorithm>
#include <cmath>

#include "host/tools/compare/breach.hpp"
#include "host/tools/compare/printed.hpp"

namespace galley {
namespace {

/// How far losses may be from the baseline's at each step, and tensors at the end, if all that differs is rounding.
struct Band {
  std::vector<double> losses;
  double tensors = 0;
  bool there = false;  ///< the control's bits differ from the baseline's
  bool skips = false;  ///< it has skipped other steps: how far it is from the baseline is then no matter of rounding
};

Result<Band> band_of(const std::vector<RunResult>& baseline, const std::vector<RunResult>& control) {
  Band out;
  for (size_t s = 0; s < control.size(); ++s) {
    const Difference d = TRY(difference_of(control[s], baseline[s]));
    out.there = out.there || !d.identical;
    out.skips = out.skips || control[s].skipped != baseline[s].skipped;
    out.tensors = std::max(out.tensors, kBandSlack * d.largest_tensor);
    out.losses.resize(std::max(out.losses.size(), baseline[s].losses.size()), kBandFloor);
    for (size_t i = 0; i < std::min(control[s].losses.size(), baseline[s].losses.size()); ++i)
      out.losses[i] = std::max(out.losses[i], kBandSlack * relative_difference(control[s].losses[i], baseline[s].losses[i]));
  }
  if (out.skips) out.there = false;
  for (size_t i = 1; i < out.losses.size(); ++i) out.losses[i] = std::max(out.losses[i], out.losses[i - 1]);
  return out;
}

std::optional<double> last_validation(const RunResult& run) {
  return run.validation.empty() ? std::nullopt : std::optional(run.validation.rbegin()->second);
}

/// The loss that an arm is judged by, at the end of its run.
double judged_loss(const RunResult& run, bool validated) {
  const auto loss = last_validation(run);
  return validated && loss ? *loss : run.final_loss();
}

/// Whether the arm's runs lie on one side of the baseline's by more than rounding can account for: the whole interval of the mean is
/// further from 0 than kLeanSlack times what the control's furthest run is.
bool leans(const std::vector<RunResult>& baseline, const std::vector<RunResult>& control, const ArmVerdict& arm) {
  const std::optional<Interval>& interval = arm.decision.interval;
  if (baseline.size() < kFewestPairs || !interval) return false;
  double furthest = 0;
  for (size_t s = 0; s < std::min(baseline.size(), control.size()); ++s) {
    const double loss = judged_loss(baseline[s], arm.validated);
    furthest = std::max({furthest, std::fabs(judged_loss(control[s], arm.validated) - loss), kBandFloor * std::fabs(loss)});
  }
  return std::fabs(interval->mean) - interval->half > kLeanSlack * furthest;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return sum / static_cast<double>(values.size());
}

void time(const Comparison& comparison, const std::vector<RunResult>& runs, const std::vector<RunResult>& baseline, ArmVerdict& out) {
  std::vector<double> all, ratios;
  for (size_t s = 0; s < runs.size(); ++s) {
    const auto own = runs[s].turn_seconds(comparison.turns), other = baseline[s].turn_seconds(comparison.turns);
    for (size_t t = 0; t < own.size(); ++t) {
      if (own[t]) all.push_back(*own[t]);
      if (own[t] && other[t] && *own[t] > 0 && *other[t] > 0) ratios.push_back(std::log(*own[t] / *other[t]));
    }
  }
  out.seconds = median(all);
  out.ratio = paired_interval(ratios);
}

Looks looks_of(const Comparison& comparison, size_t seeds) {
  return comparison.sequential && seeds >= kFewestPairs ? Looks::AfterEach : Looks::Once;
}

/// "(95 %, paired t-test, 5 seeds)"
std::string basis_text(const Comparison& comparison, size_t seeds) {
  return printed(" (95 %%, %s, %zu seeds)",
                 looks_of(comparison, seeds) == Looks::AfterEach ? "paired, valid at every look" : "paired t-test", seeds);
}

const char* measure_text(const ArmVerdict& v) { return v.validated ? "validation" : "training"; }

/// "the validation loss is 0.02 ± 0.83 higher"
std::string difference_text(const ArmVerdict& v, const Interval& difference) {
  return printed("the %s loss is ", measure_text(v)) + with_half_text(std::fabs(difference.mean), difference.half) +
         (difference.mean < 0 ? " lower" : " higher");
}

std::string signed_text(double value) {
  return value == 0 ? "the same" : number_text(std::fabs(value)) + (value < 0 ? " lower" : " higher");
}

/// "; seed 3 goes astray: 1.22 higher, the others between 0.36 lower and 0.20 lower"
std::string astray_text(const Comparison& comparison, const ArmVerdict& v) {
  if (!v.astray) return {};
  double least = HUGE_VAL, most = -HUGE_VAL;
  for (size_t s = 0; s < v.differences.size(); ++s) {
    if (s == *v.astray) continue;
    least = std::min(least, v.differences[s]);
    most = std::max(most, v.differences[s]);
  }
  return printed("; seed %lld goes astray: ", static_cast<long long>(comparison.seeds[*v.astray])) + signed_text(v.differences[*v.astray]) +
         ", the others between " + signed_text(least) + " and " + signed_text(most);
}

/// Returns "0.029, 2 % of what training gained".
std::string margin_text(const JudgedMargin& margin) {
  return number_text(margin.value, 2) + (margin.share ? printed(", %g %% of what training gained", 100 * *margin.share) : "");
}

/// Returns about so many, in two digits, and not fewer.
std::string about(size_t count) {
  size_t unit = 1;
  while (count / unit >= 100) unit *= 10;
  return std::to_string((count + unit - 1) / unit * unit);
}

/// Losses, and what their differences say.
void judge_losses(const Comparison& comparison, const std::vector<RunResult>& runs, const std::vector<RunResult>& baseline,
                  const JudgedMargin& margin, ArmVerdict& out) {
  std::vector<double> losses, validations, loss_differences, validation_differences;
  for (size_t s = 0; s < runs.size(); ++s) {
    losses.push_back(runs[s].final_loss());
    loss_differences.push_back(losses.back() - baseline[s].final_loss());
    if (const auto own = last_validation(runs[s])) {
      validations.push_back(*own);
      if (const auto other = last_validation(baseline[s])) validation_differences.push_back(*own - *other);
    }
  }
  const Looks looks = looks_of(comparison, runs.size());
  out.loss = mean(losses);
  if (validations.size() == runs.size()) out.validation = mean(validations);
  out.loss_difference = decide(loss_differences, margin.value, looks).interval;
  out.validated = validation_differences.size() == runs.size();
  if (out.validated) out.validation_difference = decide(validation_differences, margin.value, looks).interval;
  out.losses = out.validated ? validations : losses;
  out.differences = out.validated ? validation_differences : loss_differences;
  out.decision = decide(out.differences, margin.value, looks);
  const auto other = outlier(out.differences);
  if (!other) return;
  std::vector<double> rest = out.differences;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(*other));
  if (std::fabs(out.differences[*other] - mean(rest)) > margin.value) out.astray = other;
}

std::string bits_text(const ArmVerdict& v) {
  return printed("losses differ by up to %s, from step %lld on", number_text(v.largest_loss, 2).c_str(),
                 static_cast<long long>(v.first_step)) +
         (v.tensor.empty()
              ? ""
              : printed("; tensors by up to %s (%s)", number_text(v.largest_tensor, 2).c_str(), v.tensor.substr(0, 120).c_str()));
}

/// Puts the verdict on losses in words.
void conclude_losses(const Comparison& comparison, const JudgedMargin& margin, size_t seeds, ArmVerdict& out) {
  const Decision& d = out.decision;
  if (seeds < kFewestPairs || !d.interval) {
    out.sentence = "no verdict, only numbers: " +
                   (d.interval ? difference_text(out, *d.interval) + basis_text(comparison, seeds)
                               : printed("the %s losses are ", measure_text(out)) + number_text(out.validation.value_or(out.loss), 4) +
                                     " beside the baseline") +
                   (seeds < kFewestPairs ? "; a verdict takes " + std::to_string(kFewestPairs) + " seeds" : "; a loss is not finite");
    return;
  }
  if (d.word == Decision::Word::Same) {
    out.verdict = Verdict::Same;
    out.sentence = "the same within " + number_text(d.within, 2) + ": " + difference_text(out, *d.interval) +
                   basis_text(comparison, seeds) + (margin.value > 0 ? "; the margin is " + margin_text(margin) : "");
  } else if (d.word == Decision::Word::Undecided) {
    out.verdict = Verdict::Undecided;
    out.sentence = "undecided: " + difference_text(out, *d.interval) + basis_text(comparison, seeds);
    if (d.pairs > 0) out.sentence += "; about " + about(d.pairs) + " seeds would be needed to tell a difference of " + margin_text(margin);
    else if (margin.value > 0) out.sentence += "; no number of seeds would tell a difference of " + margin_text(margin);
    else out.sentence += "; training gained nothing, so that no margin follows from it: give one, such as margin = 0.01";
  } else {
    const bool better = d.word == Decision::Word::Better;
    out.verdict = better ? Verdict::Better : Verdict::Worse;
    out.sentence = std::string(better ? "better" : "worse") + " by " + with_half_text(std::fabs(d.interval->mean), d.interval->half) +
                   ": the " + measure_text(out) + " loss is " + (better ? "lower" : "higher") + basis_text(comparison, seeds);
    if (std::fabs(d.interval->mean) - d.interval->half < margin.value)
      out.sentence += "; it may be less than the margin, " + margin_text(margin);
  }
  out.sentence += astray_text(comparison, out);
}

void conclude(const Comparison& comparison, const std::vector<Difference>& differences, const Band& band, const JudgedMargin& margin,
              size_t seeds, bool leaning, ArmVerdict& out) {
  if (out.other_steps == 0 && std::all_of(differences.begin(), differences.end(), [](const Difference& d) { return d.identical; })) {
    out.verdict = Verdict::Identical;
    out.sentence = printed("identical to the byte: all losses and %lld tensors, with %zu %s",
                           static_cast<long long>(differences[0].tensors), seeds, seeds == 1 ? "seed" : "seeds");
    return;
  }
  const bool alone = std::any_of(differences.begin(), differences.end(), [](const Difference& d) { return d.alone || d.tensors == 0; });
  if (out.other_steps == 0 && band.there && !alone && out.outside == 0 && out.largest_tensor <= band.tensors && !leaning) {
    out.verdict = Verdict::Rounding;
    out.sentence = "the same to rounding: " + bits_text(out);
    return;
  }
  conclude_losses(comparison, margin, seeds, out);
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::Baseline: return "baseline";
    case Verdict::Identical: return "identical";
    case Verdict::Rounding: return "rounding";
    case Verdict::Same: return "same";
    case Verdict::Better: return "better";
    case Verdict::Worse: return "worse";
    case Verdict::Undecided: return "undecided";
    case Verdict::Numbers: break;
  }
  return "numbers only";
}

JudgedMargin margin_of(const Margin& margin, const std::vector<RunResult>& baseline) {
  JudgedMargin out;
  std::vector<double> gained;
  for (const RunResult& run : baseline) {
    if (run.losses.empty()) continue;
    const auto start = run.validation.find(0);
    gained.push_back((start != run.validation.end() ? start->second : run.losses.front()) -
                     last_validation(run).value_or(run.final_loss()));
  }
  if (!gained.empty() && std::isfinite(mean(gained))) out.gained = mean(gained);
  if (margin.nats > 0) {
    out.value = margin.nats;
    return out;
  }
  out.share = margin.share;
  out.value = std::max(0.0, margin.share * out.gained.value_or(0));
  return out;
}

Result<std::vector<ArmVerdict>> judge(const Comparison& comparison, const std::vector<std::vector<RunResult>>& results,
                                      const std::vector<RunResult>& control) {
  const std::vector<RunResult>& baseline = results.front();
  const Band band = TRY(band_of(baseline, control));
  const JudgedMargin margin = margin_of(comparison.margin, baseline);
  std::vector<ArmVerdict> out;
  for (size_t a = 0; a < results.size(); ++a) {
    const std::vector<RunResult>& runs = results[a];
    ArmVerdict& v = out.emplace_back();
    v.planned = comparison.arms[a].planned->peak_memory();
    for (const RunResult& run : runs) {
      v.resident = std::max(v.resident, run.resident);
      v.skipped += static_cast<int64_t>(run.skipped.size());
    }
    judge_losses(comparison, runs, baseline, margin, v);
    time(comparison, runs, baseline, v);
    if (a == 0) {
      v.verdict = Verdict::Baseline;
      v.sentence = "the baseline";
      continue;
    }
    std::vector<Difference> differences;
    for (size_t s = 0; s < runs.size(); ++s) {
      if (runs[s].losses.size() != baseline[s].losses.size()) {  // step by step, nothing is comparable
        v.other_steps = static_cast<int64_t>(runs[s].losses.size());
        continue;
      }
      const Difference d = TRY(difference_of(runs[s], baseline[s]));
      if (d.first_step > 0 && (v.first_step == 0 || d.first_step < v.first_step)) v.first_step = d.first_step;
      v.largest_loss = std::max(v.largest_loss, d.largest_loss);
      if (d.largest_tensor > v.largest_tensor) {
        v.largest_tensor = d.largest_tensor;
        v.tensor = d.tensor;
      }
      differences.push_back(d);
      const size_t steps = std::min(runs[s].losses.size(), baseline[s].losses.size());
      for (size_t i = 0; band.there && i < steps; ++i) {
        if (relative_difference(runs[s].losses[i], baseline[s].losses[i]) <= band.losses[i]) continue;
        const auto step = static_cast<int64_t>(i) + 1;
        v.outside = v.outside == 0 ? step : std::min(v.outside, step);
        break;
      }
    }
    conclude(comparison, differences, band, margin, runs.size(), leans(baseline, control, v), v);
    v.breach = breach_of(*comparison.arms.front().study, *comparison.arms[a].study, v.verdict, v.decision.apart);
    if (!v.breach.empty()) v.sentence += kBreach + v.breach;
  }
  return out;
}

}  // namespace galley
