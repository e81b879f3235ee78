#include "host/compare/verdict.hpp"

#include <algorithm>
#include <cmath>

#include "host/compare/breach.hpp"
#include "host/compare/printed.hpp"

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

/// Whether intervals are those of a comparison that looks after each seed.
bool looks(const Comparison& comparison, size_t seeds) { return comparison.sequential && seeds >= kFewestPairs; }

std::string difference_text(const Comparison& comparison, const char* what, const Interval& difference, size_t seeds) {
  return printed("the %s loss is %.4g ± %.2g %s (95 %%, %s, %zu seeds)", what, std::fabs(difference.mean), difference.half,
                 difference.mean < 0 ? "lower" : "higher", looks(comparison, seeds) ? "paired, valid at every look" : "paired t-test",
                 seeds);
}

/// Losses, and the verdict on them.
void judge_losses(const Comparison& comparison, const std::vector<RunResult>& runs, const std::vector<RunResult>& baseline,
                  ArmVerdict& out) {
  std::vector<double> losses, validations, loss_differences, validation_differences;
  for (size_t s = 0; s < runs.size(); ++s) {
    losses.push_back(runs[s].final_loss());
    loss_differences.push_back(losses.back() - baseline[s].final_loss());
    if (const auto own = last_validation(runs[s])) {
      validations.push_back(*own);
      if (const auto other = last_validation(baseline[s])) validation_differences.push_back(*own - *other);
    }
  }
  out.loss = mean(losses);
  if (validations.size() == runs.size()) out.validation = mean(validations);
  const auto interval = [&](const std::vector<double>& differences) {
    return looks(comparison, runs.size()) ? sequential_interval(differences) : paired_interval(differences);
  };
  out.loss_difference = interval(loss_differences);
  if (validation_differences.size() == runs.size()) out.validation_difference = interval(validation_differences);
}

std::string bits_text(const ArmVerdict& v) {
  return printed("losses differ by up to %.1e, from step %lld on", v.largest_loss, static_cast<long long>(v.first_step)) +
         (v.tensor.empty() ? "" : printed("; tensors by up to %.1e (%s)", v.largest_tensor, v.tensor.substr(0, 120).c_str()));
}

void conclude(const Comparison& comparison, const std::vector<Difference>& differences, const Band& band, size_t seeds, ArmVerdict& out) {
  if (out.other_steps == 0 && std::all_of(differences.begin(), differences.end(), [](const Difference& d) { return d.identical; })) {
    out.verdict = Verdict::Identical;
    out.sentence = printed("identical to the byte: all losses and %lld tensors, with %zu %s",
                           static_cast<long long>(differences[0].tensors), seeds, seeds == 1 ? "seed" : "seeds");
    return;
  }
  const bool alone = std::any_of(differences.begin(), differences.end(), [](const Difference& d) { return d.alone || d.tensors == 0; });
  if (out.other_steps == 0 && band.there && !alone && out.outside == 0 && out.largest_tensor <= band.tensors) {
    out.verdict = Verdict::Rounding;
    out.sentence = "the same to rounding: " + bits_text(out);
    return;
  }
  const std::optional<Interval>& difference = out.validation_difference ? out.validation_difference : out.loss_difference;
  const char* const what = out.validation_difference ? "validation" : "training";
  if (seeds < kFewestPairs || !difference) {
    out.sentence = "no verdict, only numbers: " +
                   (difference ? difference_text(comparison, what, *difference, seeds)
                               : printed("the %s losses are %.4g beside the baseline", what, out.validation.value_or(out.loss))) +
                   (seeds < kFewestPairs ? "; a verdict takes " + std::to_string(kFewestPairs) + " seeds" : "; a loss is not finite");
    return;
  }
  out.verdict = difference->holds(0) ? Verdict::Alike : Verdict::Different;
  out.sentence =
      (out.verdict == Verdict::Alike ? "no difference found: " : "different: ") + difference_text(comparison, what, *difference, seeds);
}

}  // namespace

const char* verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::Baseline: return "baseline";
    case Verdict::Identical: return "identical";
    case Verdict::Rounding: return "rounding";
    case Verdict::Different: return "different";
    case Verdict::Alike: return "no difference found";
    case Verdict::Numbers: break;
  }
  return "numbers only";
}

Result<std::vector<ArmVerdict>> judge(const Comparison& comparison, const std::vector<std::vector<RunResult>>& results,
                                      const std::vector<RunResult>& control) {
  const std::vector<RunResult>& baseline = results.front();
  const Band band = TRY(band_of(baseline, control));
  std::vector<ArmVerdict> out;
  for (size_t a = 0; a < results.size(); ++a) {
    const std::vector<RunResult>& runs = results[a];
    ArmVerdict& v = out.emplace_back();
    v.planned = comparison.arms[a].study->peak_memory();
    for (const RunResult& run : runs) {
      v.resident = std::max(v.resident, run.resident);
      v.skipped += static_cast<int64_t>(run.skipped.size());
    }
    judge_losses(comparison, runs, baseline, v);
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
    conclude(comparison, differences, band, runs.size(), v);
    v.breach = breach_of(*comparison.arms.front().study, *comparison.arms[a].study, v.verdict);
    if (!v.breach.empty()) v.sentence += kBreach + v.breach;
  }
  return out;
}

}  // namespace galley
