#include "host/commands/compare.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "host/base/new_file.hpp"
#include "host/commands/run_commands.hpp"
#include "host/commands/stop_signals.hpp"
#include "host/session/run_lock.hpp"
#include "host/tools/compare/budget.hpp"
#include "host/tools/compare/compare_report.hpp"
#include "host/tools/compare/control.hpp"
#include "host/tools/compare/turns.hpp"
#include "host/tools/report/columns.hpp"
#include "host/tools/report/live_line.hpp"
#include "host/tools/report/page.hpp"
#include "host/tools/report/run_page.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// "1,2,3" or "1 2 3".
Result<std::vector<int64_t>> seeds_of(const CommandLine& a) {
  std::vector<int64_t> out;
  for (const std::string& word : a.list("--seeds")) {
    char* stop = nullptr;
    const long long seed = std::strtoll(word.c_str(), &stop, 10);
    if (word.empty() || *stop || seed < 0 || std::find(out.begin(), out.end(), seed) != out.end())
      return recipe_error("--seeds '" + a.get("--seeds") + "': expected different whole numbers, such as 1,2,3,4,5");
    out.push_back(seed);
  }
  return out;
}

/// Columns of the arms' names in the line that shows which of them has its turn.
size_t width_of(const std::vector<Arm>& arms) {
  size_t out = 1;
  for (const Arm& arm : arms) out = std::max(out, std::min<size_t>(display_width(arm.name), 30));
  return out;
}

/// The baseline with other rounding errors, as an arm of its own; its name cannot be a variant's.
Result<Arm> control_of(const Comparison& comparison, const StudyOptions& options) {
  Arm out = comparison.arms.front();
  out.given_uses.push_back(TRY(control_strategy(*out.study)));
  out = TRY(planned_arm(out, {}, comparison.seeds.front(), options));
  out.name += ".control";
  return out;
}

/// What the runs say that are there, up to a seed, and the verdicts.
struct Judged {
  Comparison comparison;  ///< with the seeds that were used
  std::vector<std::vector<RunResult>> results;
  std::vector<RunResult> control;
  std::vector<ArmVerdict> verdicts;

  /// The first `seeds` of the comparison's; what was read before is not read again.
  Status look(const Comparison& all, const Arm& control_arm, const fs::path& out, size_t seeds) {
    comparison = all;
    comparison.seeds.resize(seeds);
    results.resize(all.arms.size());
    const auto read = [&](const Arm& arm, std::vector<RunResult>& runs) -> Status {
      while (runs.size() < seeds) {
        const int64_t seed = all.seeds[runs.size()];
        Result<RunResult> run = verified_result(run_of(out, arm, seed), steps_of(arm));
        if (!run) return of_run(arm, seed, std::move(run).error());
        runs.push_back(std::move(run).value());
      }
      return ok();
    };
    for (size_t a = 0; a < results.size(); ++a) TRY_STATUS(read(all.arms[a], results[a]));
    TRY_STATUS(read(control_arm, control));
    verdicts = TRY(judge(comparison, results, control));
    return ok();
  }
};

}  // namespace

Result<bool> is_comparison(const std::string& recipe, const StudyOptions& options) {
  return TRY(read_compare(recipe, recipe_options(options))).has_value();
}

Status print_plans(const std::string& recipe, const StudyOptions& options, NewFile* page) {
  const Comparison comparison = TRY(read_comparison({recipe}, {options, {}, 0, {}}, Refused::Kept));
  if (page) {
    std::vector<PlannedVariant> variants;
    for (const Arm& arm : comparison.arms) variants.push_back({arm.name, arm.planned.get(), arm.refusal});
    TRY_STATUS(page->file().write(page_html(variants_page(variants, recipe))));
    TRY_STATUS(page->finish());
  }
  print_lines(compare_plans(comparison));
  const std::string several = comparison.ranks > 1 ? " --ranks " + std::to_string(comparison.ranks) : "";
  print_lines("galley plan %s --set variant=%s%s shows all of one\n", recipe.c_str(), comparison.arms.front().name.c_str(),
              several.c_str());
  if (page) print_lines("written: %s\n", page->file().path().c_str());
  return ok();
}

Status command_compare(const CommandLine& a) {
  CompareOptions options;
  options.study = TRY(study_options(a));
  options.seeds = TRY(seeds_of(a));
  options.turns = TRY(a.integer("--turns", 0, 1));
  options.margin = a.get("--margin");
  Comparison comparison = TRY(read_comparison(a.positional, options));
  std::vector<Expectation> expectations;
  if (const auto given = a.flags.find("--expect"); given != a.flags.end())
    for (const std::string& text : given->second) expectations.push_back(TRY(parse_expectation(text, comparison)));

  const fs::path out = a.get("--out");
  std::error_code error;
  fs::create_directories(out / "arms", error);
  if (error) return recipe_error("--out " + out.string() + ": cannot be created: " + error.message());
  const RunLock lock = TRY(RunLock::take(out));
  print_lines(compare_plans(comparison) + trained_text(comparison));
  std::fflush(stdout);

  StopSignals signals;
  signals.install();
  std::optional<PartsLine> shown(std::in_place, STDOUT_FILENO, "turn ");
  size_t width = width_of(comparison.arms);
  TurnOptions turns;
  turns.program = fs::read_symlink("/proc/self/exe", error);
  if (error) return run_error("/proc/self/exe: " + error.message());
  turns.train_words = a.words_of({"--plugin-path", "--device", "--target", "--confine"});
  // The limit is of each of several processes; it is theirs, and not of the one that trains in their place.
  if (comparison.ranks == 1)
    for (const std::string& word : a.words_of({"--memory"})) turns.train_words.push_back(word);
  turns.resume_words = a.words_of({"--plugin-path"});
  // A run that is taken over is that of a recipe of this command line, whoever has trained it.
  if (!a.has("--confine")) turns.resume_words.emplace_back("--unconfined");
  turns.stop = StopSignals::asked;
  turns.begins = [&](int64_t done, int64_t of, const Arm& arm, int64_t seed) {
    shown->begins(done, of, left_in(arm.name, width) + ", seed " + std::to_string(seed));
  };
  const Status settled = settle_budget(comparison, out, options.study, turns);
  shown->clear();
  TRY_STATUS(settled);
  print_lines(budget_text(comparison));
  std::fflush(stdout);

  const Arm control = TRY(control_of(comparison, options.study));
  Comparison all = comparison;
  all.arms.push_back(control);
  Judged judged;
  turns.decided = [&](size_t seeds) -> Result<bool> {
    if (!comparison.sequential || seeds < kFewestPairs) return false;
    TRY_STATUS(judged.look(comparison, control, out, seeds));
    return std::all_of(judged.verdicts.begin(), judged.verdicts.end(), [](const ArmVerdict& v) { return v.decided(); });
  };
  shown.emplace(STDOUT_FILENO, "turn ");
  width = width_of(all.arms);
  const Status ran = run_turns(all, out, turns);
  shown->clear();
  TRY_STATUS(ran);

  // A comparison that looks after each seed has looked after the last one.
  if (judged.verdicts.empty()) TRY_STATUS(judged.look(comparison, control, out, comparison.seeds.size()));
  TRY_STATUS(write_atomic(out / "compare.json", compare_json(judged.comparison, judged.results, judged.verdicts)));
  const RedMarks red = red_marks();
  print_lines("\n" + compare_table(judged.comparison, judged.verdicts, red.begin, red.end) + trained_text(judged.comparison), red);
  if (comparison.sequential) print_lines(looks_text(judged.comparison.seeds.size(), comparison.seeds.size()));
  print_lines("done: %s\n", (out / "compare.json").c_str());
  for (const Expectation& e : expectations)
    if (const std::string seen = unmet(e, judged.comparison, judged.verdicts); !seen.empty())
      return run_error("--expect '" + e.text + "' does not hold: " + seen);
  return ok();
}

}  // namespace galley
