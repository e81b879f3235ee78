#include "host/tools/compare/compare_report.hpp"

#include <algorithm>
#include <cmath>

#include "host/base/json.hpp"
#include "host/base/nearest.hpp"
#include "host/base/units.hpp"
#include "host/plan/timing.hpp"
#include "host/tools/compare/printed.hpp"
#include "host/tools/report/columns.hpp"

namespace galley {
namespace {

/// Both tables have 62 columns after the names.
size_t name_width(const Comparison& comparison) {
  size_t width = 8;
  for (const Arm& arm : comparison.arms) width = std::max(width, std::min<size_t>(display_width(arm.name), 18));
  return width;
}

Value interval(const std::optional<Interval>& x) {
  if (!x) return {};
  return Value(Table{{"mean", Value(x->mean)}, {"low", Value(x->low())}, {"high", Value(x->high())}});
}
Value number(const std::optional<double>& x) { return x ? Value(*x) : Value(); }

Value numbers(const std::vector<double>& values) {
  List out;
  for (const double value : values) out.emplace_back(value);
  return Value(std::move(out));
}

Value margin_json(const JudgedMargin& margin) {
  return Value(Table{{"value", Value(margin.value)}, {"share", number(margin.share)}, {"gained", number(margin.gained)}});
}

Value budget_of(const Comparison& comparison) {
  if (!comparison.budget) return {};
  const bool tokens = comparison.budget->tokens > 0;
  return Value(Table{{tokens ? "tokens" : "seconds", tokens ? Value(comparison.budget->tokens) : Value(comparison.budget->seconds)}});
}

/// Returns the step's time as a factor of the baseline's.
std::string ratio_text(const ArmVerdict& v) {
  if (v.verdict == Verdict::Baseline || !v.ratio) return v.verdict == Verdict::Baseline ? "1" : "-";
  return printed("%.2f ± %.2f", std::exp(v.ratio->mean), (std::exp(v.ratio->high()) - std::exp(v.ratio->low())) / 2);
}

/// Each seed's loss of an arm, and in brackets less the baseline's, in lines of at most 80 columns; "" where it is known to be the same.
std::string pairs_text(const Comparison& comparison, const ArmVerdict& v) {
  constexpr size_t most = 40, columns = 80;
  if (v.differences.size() < 2 || v.verdict == Verdict::Identical || v.verdict == Verdict::Rounding || v.verdict == Verdict::Baseline)
    return {};
  std::string out, line = "  by seed:";
  for (size_t s = 0; s < std::min(v.differences.size(), most); ++s) {
    const double d = v.differences[s];
    const std::string one = " " + std::to_string(comparison.seeds[s]) + ": " + number_text(v.losses[s], 4) + " (" + (d > 0 ? "+" : "") +
                            number_text(d) + ")" + (s + 1 < v.differences.size() ? "," : "");
    if (line.size() + one.size() > columns) {
      out += line + "\n";
      line = "          ";
    }
    line += one;
  }
  if (v.differences.size() > most) line += printed(" and %zu more", v.differences.size() - most);
  return out + line + "\n";
}

/// Entries of the arms' recipes that are not the same, beside strategies.
std::vector<std::string> entries_that_differ(const Comparison& comparison) {
  std::vector<std::string> out;
  const auto differs_by = [&](const char* name, const auto& of) {
    if (std::ranges::any_of(comparison.arms, [&](const Arm& arm) { return of(*arm.study) != of(*comparison.arms.front().study); }))
      out.emplace_back(name);
  };
  const auto differs = [&](const char* name, const auto& of) { differs_by(name, [&](const Study& s) { return of(s.recipe); }); };
  differs("model", [](const Recipe& r) { return std::make_pair(r.model.path.string() + r.model.family, to_json(Value(r.model.config))); });
  differs("data", [](const Recipe& r) { return r.data.kind + to_json(Value(r.data.options)); });
  differs("batch", [](const Recipe& r) { return r.batch; });
  differs("length", [](const Recipe& r) { return r.length; });
  differs("target_length", [](const Recipe& r) { return r.target_length; });
  differs("seed", [](const Recipe& r) { return r.seed; });
  differs("steps", [](const Recipe& r) { return r.steps; });
  differs_by("lanes", [](const Study& s) { return s.program.lanes; });
  return out;
}

/// Of several processes: of which of them the plans are, and what times leave out.
std::string process_text(const Comparison& comparison) {
  const auto arm = std::ranges::find_if(comparison.arms, [](const Arm& one) { return one.planned != nullptr; });
  if (arm == comparison.arms.end() || arm->planned->program.ranks == 1) return "";
  const Study& s = *arm->planned;
  const auto ranks = static_cast<long long>(s.program.ranks), rank = static_cast<long long>(s.program.rank);
  std::string out = arm->study != arm->planned ? printed("planned for the one of %lld processes that needs the most\n", ranks)
                                               : printed("planned for process %lld of %lld, counted from 0\n", rank, ranks);
  if (!s.target.link_for(s.program.ranks))
    out += printed(
        "at best leaves out what exchanges take: no link of the target joins %lld processes;\n"
        "  give one in a file for --target (docs/ranks.md)\n",
        ranks);
  return out;
}

}  // namespace

std::string compare_plans(const Comparison& comparison) {
  const size_t width = name_width(comparison);
  std::string out =
      left_in("arm", width) + printed(" %11s %11s %11s %11s %12s\n", "planned", "weights", "states", "activations", "at best");
  for (const Arm& arm : comparison.arms) {
    if (!arm.planned) {
      out += left_in(arm.name, width) + "  refused: " + arm.refusal + "\n";
      continue;
    }
    const Study& s = *arm.planned;
    std::map<std::string, int64_t> owners;
    for (const ClassPlan& c : s.plan.classes)
      for (size_t o = 0; o < owner_names.size(); ++o) owners[owner_names[o]] += c.owners[o];
    const int64_t activations = owners["activations"] + owners["saved"] + owners["gradients"];
    out += left_in(arm.name, width) + printed(" %11s %11s %11s %11s %9.3g ms\n", bytes_text(s.peak_memory()).c_str(),
                                              bytes_text(owners["weights"]).c_str(), bytes_text(owners["states"]).c_str(),
                                              bytes_text(activations).c_str(), 1e3 * step_seconds(s.program, s.target));
  }
  return out + process_text(comparison);
}

std::string trained_text(const Comparison& comparison) {
  if (comparison.ranks == 1) return "";
  const auto rounds = [](const Program& program) { return program.repeats_parts() || program.together > 1; };
  const bool groups = std::ranges::any_of(comparison.arms, [&](const Arm& arm) { return arm.planned && rounds(arm.planned->program); });
  return printed(
      "one process trains each arm in the place of %lld, lane after lane: losses and models\n"
      "  are theirs, %s; resident memory and the time of a step are its own\n",
      static_cast<long long>(comparison.ranks), groups ? "up to the rounding of sums between them" : "to the byte");
}

std::string budget_text(const Comparison& comparison) {
  if (!comparison.budget) return "";
  std::string out = comparison.budget->tokens > 0 ? printed("budget: %lld tokens", static_cast<long long>(comparison.budget->tokens))
                                                  : printed("budget: %.6g s", comparison.budget->seconds);
  for (const Arm& arm : comparison.arms)
    out += (&arm == comparison.arms.data() ? ": " : ", ") + arm.name + printed(" %lld steps", static_cast<long long>(steps_of(arm)));
  return out + "\n";
}

std::string looks_text(size_t used, size_t all) {
  return printed("%zu of %zu seeds: ", used, all) + (used < all ? "each arm is decided" : "no other is left") + "\n";
}

std::string compare_table(const Comparison& comparison, const std::vector<ArmVerdict>& verdicts, const char* red, const char* plain) {
  const size_t width = name_width(comparison);
  std::string out =
      left_in("arm", width) + printed(" %9s %10s %11s %11s %15s\n", "loss", "validation", "planned", "resident", "time of a step");
  for (size_t a = 0; a < verdicts.size(); ++a) {
    const ArmVerdict& v = verdicts[a];
    out += left_in(comparison.arms[a].name, width) +
           printed(" %9.4f %10s %11s %11s ", v.loss, v.validation ? printed("%.4f", *v.validation).c_str() : "-",
                   bytes_text(v.planned).c_str(), v.resident ? bytes_text(v.resident).c_str() : "-") +
           right_in(ratio_text(v), 15) + "\n";
  }
  for (size_t a = 1; a < verdicts.size(); ++a)
    out += comparison.arms[a].name + ": " + (verdicts[a].breach.empty() ? verdicts[a].sentence : red + verdicts[a].sentence + plain) +
           (verdicts[a].skipped ? printed("; %lld steps were not applied", static_cast<long long>(verdicts[a].skipped)) : "") + "\n" +
           pairs_text(comparison, verdicts[a]);
  if (const auto differ = entries_that_differ(comparison); !differ.empty()) {
    out += "beside strategies, arms differ in ";
    for (size_t i = 0; i < differ.size(); ++i) out += (i == 0 ? "" : ", ") + differ[i];
    out += "\n";
  }
  return out;
}

std::string compare_json(const Comparison& comparison, const std::vector<std::vector<RunResult>>& results,
                         const std::vector<ArmVerdict>& verdicts) {
  List arms, seeds, differ;
  const bool looks = comparison.sequential && comparison.seeds.size() >= kFewestPairs;
  for (const int64_t seed : comparison.seeds) seeds.emplace_back(seed);
  for (const std::string& name : entries_that_differ(comparison)) differ.emplace_back(name);
  for (size_t a = 0; a < verdicts.size(); ++a) {
    const Arm& arm = comparison.arms[a];
    const ArmVerdict& v = verdicts[a];
    List runs, strategies;
    const auto by_step = [&](const Value& value) { return v.other_steps > 0 ? Value() : value; };
    for (size_t s = 0; s < results[a].size(); ++s) {
      const RunResult& run = results[a][s];
      List validation;
      for (const auto& [step, loss] : run.validation) validation.push_back(Value(List{Value(step), Value(loss)}));
      runs.push_back(Value(Table{{"seed", Value(comparison.seeds[s])},
                                 {"directory", Value("arms/" + arm.name + "/seed-" + std::to_string(comparison.seeds[s]))},
                                 {"loss", Value(run.final_loss())},
                                 {"validation", Value(std::move(validation))},
                                 {"steps", Value(static_cast<int64_t>(run.losses.size()))},
                                 {"positions", Value(run.positions)},
                                 {"tokens", Value(run.tokens)},
                                 {"skipped", Value(static_cast<int64_t>(run.skipped.size()))}}));
    }
    for (const auto& strategy : arm.study->loaded) strategies.emplace_back(strategy->name());
    arms.push_back(Value(Table{{"name", Value(arm.name)},
                               {"verdict", Value(std::string(verdict_name(v.verdict)))},
                               {"sentence", Value(v.sentence)},
                               {"breach", v.breach.empty() ? Value() : Value(v.breach)},
                               {"strategies", Value(std::move(strategies))},
                               {"loss", Value(v.loss)},
                               {"validation", number(v.validation)},
                               {"measure", Value(std::string(v.validated ? "validation" : "training"))},
                               {"differences", numbers(v.differences)},
                               {"astray", v.astray ? Value(comparison.seeds[*v.astray]) : Value()},
                               {"within", v.verdict == Verdict::Same ? Value(v.decision.within) : Value()},
                               {"seeds_needed", v.decision.pairs > 0 ? Value(static_cast<int64_t>(v.decision.pairs)) : Value()},
                               {"loss_difference", interval(v.loss_difference)},
                               {"validation_difference", interval(v.validation_difference)},
                               {"steps", Value(steps_of(arm))},
                               {"lanes", Value(arm.study->program.lanes)},
                               {"first_step", by_step(Value(v.first_step))},
                               {"outside_band", by_step(Value(v.outside))},
                               {"largest_loss_difference", by_step(Value(v.largest_loss))},
                               {"largest_tensor_difference", by_step(Value(v.largest_tensor))},
                               {"tensor", by_step(Value(v.tensor))},
                               {"planned", Value(v.planned)},
                               {"resident", Value(v.resident)},
                               {"seconds", number(v.seconds)},
                               {"ratio", interval(v.ratio)},
                               {"flops_per_position", Value(arm.study->program.flops_per_token)},
                               {"runs", Value(std::move(runs))}}));
  }
  return to_json(Value(Table{{"arms", Value(std::move(arms))},
                             {"seeds", Value(std::move(seeds))},
                             {"turns", Value(comparison.turns)},
                             {"ranks", Value(comparison.ranks)},
                             {"differ", Value(std::move(differ))},
                             {"confidence", Value(0.95)},
                             {"margin", margin_json(margin_of(comparison.margin, results.front()))},
                             {"budget", budget_of(comparison)},
                             {"sequential", Value(comparison.sequential)},
                             {"seeds_used", Value(static_cast<int64_t>(comparison.seeds.size()))},
                             {"test", Value(std::string(looks ? "paired t confidence sequence over seeds" : "paired t-test over seeds"))}}),
                 2) +
         "\n";
}

namespace {

size_t index_of(const Comparison& comparison, const std::string& arm) {
  size_t i = 0;
  while (i < comparison.arms.size() && comparison.arms[i].name != arm) ++i;
  return i;
}

std::optional<double> measured(const ArmVerdict& v, const std::string& what) {
  if (what == "memory") return static_cast<double>(v.planned);
  if (what == "resident") return v.resident ? std::optional(static_cast<double>(v.resident)) : std::nullopt;
  if (what == "seconds") return v.seconds;
  if (what == "loss") return v.loss;
  return v.validation;
}

}  // namespace

Result<Expectation> parse_expectation(const std::string& text, const Comparison& comparison) {
  const Error wrong =
      recipe_error("--expect '" + text + "': not a condition",
                   "write 'ARM: identical', 'ARM: rounding', 'ARM: same', 'ARM: better', 'ARM: worse' or 'ARM: memory <= 0.5 "
                   "OTHER', also with >=; for memory: resident, seconds, loss, validation");
  Expectation out;
  out.text = text;
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return wrong;
  out.arm = text.substr(0, colon);
  std::vector<std::string> words;
  for (size_t at = colon + 1; at < text.size();) {
    const size_t begin = text.find_first_not_of(' ', at), end = std::min(text.find(' ', begin), text.size());
    if (begin == std::string::npos) break;
    words.push_back(text.substr(begin, end - begin));
    at = end;
  }
  const auto unknown = [&](const std::string& arm) {
    std::vector<std::string> names;
    for (const Arm& one : comparison.arms) names.push_back(one.name);
    const std::string near = did_you_mean(arm, names);
    return recipe_error("--expect '" + text + "': there is no arm '" + arm + "'" + (near.empty() ? "" : "; " + near));
  };
  if (index_of(comparison, out.arm) == comparison.arms.size()) return unknown(out.arm);
  for (const char* known : {"identical", "rounding", "same", "better", "worse"})
    if (words.size() == 1 && words[0] == known) {
      out.what = words[0];
      return out;
    }
  if (words.size() < 3 || words.size() > 4 || (words[1] != "<=" && words[1] != ">=")) return wrong;
  for (const char* known : {"memory", "resident", "seconds", "loss", "validation"})
    if (words[0] == known) out.what = known;
  const auto factor = parse_json(words[2], "--expect");
  if (out.what.empty() || !factor || !factor->number(&out.factor)) return wrong;
  out.at_most = words[1] == "<=";
  if (words.size() == 4) out.other = words[3];
  if (!out.other.empty() && index_of(comparison, out.other) == comparison.arms.size()) return unknown(out.other);
  return out;
}

std::string unmet(const Expectation& e, const Comparison& comparison, const std::vector<ArmVerdict>& verdicts) {
  const ArmVerdict& v = verdicts[index_of(comparison, e.arm)];
  const Verdict verdict = v.verdict;
  const auto is = [&](std::initializer_list<Verdict> any) { return std::find(any.begin(), any.end(), verdict) != any.end(); };
  if (e.what == "identical") return is({Verdict::Identical, Verdict::Baseline}) ? "" : v.sentence;
  if (e.what == "rounding") return is({Verdict::Identical, Verdict::Baseline, Verdict::Rounding}) ? "" : v.sentence;
  if (e.what == "same") return is({Verdict::Identical, Verdict::Baseline, Verdict::Rounding, Verdict::Same}) ? "" : v.sentence;
  if (e.what == "better") return is({Verdict::Better}) ? "" : v.sentence;
  if (e.what == "worse") return is({Verdict::Worse}) ? "" : v.sentence;
  const auto own = measured(v, e.what);
  const auto other = e.other.empty() ? std::optional(1.0) : measured(verdicts[index_of(comparison, e.other)], e.what);
  if (!own || !other) return e.what + " was not measured";
  const double bound = e.factor * *other;
  // A number that is not finite meets nothing.
  return (e.at_most ? *own <= bound : *own >= bound) ? "" : printed("%s is %.6g, the bound %.6g", e.what.c_str(), *own, bound);
}

}  // namespace galley
