#include "host/tools/compare/turns.hpp"

#include <algorithm>

#include "host/base/file.hpp"
#include "host/base/process.hpp"
#include "host/exec/state.hpp"
#include "host/session/origins.hpp"
#include "host/session/run_directory.hpp"
#include "host/session/train.hpp"
#include "host/tools/compare/results.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

Result<int64_t> steps_done(const fs::path& run) {
  const auto latest = TRY(find_latest(run / "state"));
  return latest ? step_of(*latest) : 0;
}

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::map<std::string, std::string> sets_of(const Arm& arm, int64_t seed) {
  std::map<std::string, std::string> out = arm.sets;
  out["seed"] = std::to_string(seed);
  return out;
}

/// Of a run that is there: it is this arm's, and nothing that it depends on has changed.
Status check_run(const Arm& arm, int64_t seed, const fs::path& run) {
  const RunRecord record = TRY(open_run(run));
  if (record.recipe != arm.study->recipe.path || record.input.sets != sets_of(arm, seed) || record.input.given_uses != arm.given_uses ||
      record.device != arm.study->target.device || record.lanes != arm.study->program.lanes)
    return recipe_error(run.string() + ": this is the run of another recipe, or of other arguments",
                        "give the comparison another --out, or remove the folder");
  TRY_STATUS(check_recipe(record, run));
  return check_origins(record, *arm.study, run);
}

/// The cause and the hint that a process ended with, from the end of its log.
std::string last_words(const fs::path& log, uint64_t from) {
  const Result<std::string> text = read_text(log, UINT64_C(1) << 30);
  if (!text || text->size() <= from) return "it said nothing";
  const std::string_view said = std::string_view(*text).substr(from);
  const size_t at = said.rfind("galley: ");
  std::string out(at == std::string_view::npos ? said.substr(said.size() > 300 ? said.size() - 300 : 0) : said.substr(at + 8));
  while (!out.empty() && out.back() == '\n') out.pop_back();
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

Status train_turn(const Arm& arm, int64_t seed, const fs::path& run, int64_t until, const TurnOptions& options) {
  std::error_code error;
  fs::create_directories(run.parent_path(), error);
  if (error) return run_error("cannot create " + run.parent_path().string() + ": " + error.message());
  const bool fresh = !is_there(run / "run.toml");
  std::vector<std::string> words = {options.program.string(), fresh ? "train" : "resume"};
  if (fresh) {
    words.push_back(arm.recipe.string());
    words.insert(words.end(), {"--out", run.string()});
    for (const auto& [name, value] : sets_of(arm, seed)) words.insert(words.end(), {"--set", name + "=" + value});
    for (const std::string& use : arm.given_uses) words.insert(words.end(), {"--use", use});
    if (arm.lanes > 0) words.insert(words.end(), {"--lanes", std::to_string(arm.lanes)});
  } else {
    words.push_back(run.string());
  }
  const auto& more = fresh ? options.train_words : options.resume_words;
  words.insert(words.end(), more.begin(), more.end());
  words.insert(words.end(), {"--until", std::to_string(until)});
  fs::path log = run;
  log += ".log";
  const uintmax_t before = fs::file_size(log, error);
  Process process = TRY(Process::start(words, log));
  const int code = process.wait(options.stop);
  if (code == 0) return ok();
  if (code == static_cast<int>(Exit::Interrupted) || options.stop())
    return Error{Exit::Interrupted, "interrupted in arm '" + arm.name + "', seed " + std::to_string(seed), "start the same command again"};
  const std::string cause = code == Process::kNotStarted ? "cannot start " + options.program.string() + "; was it replaced meanwhile?"
                            : code > 128                 ? "it was ended by signal " + std::to_string(code - 128)
                                                         : last_words(log, error ? 0 : static_cast<uint64_t>(before));
  const bool known =
      code == static_cast<int>(Exit::Recipe) || code == static_cast<int>(Exit::DoesNotFit) || code == static_cast<int>(Exit::Plugin);
  return Error{known ? static_cast<Exit>(code) : Exit::Failed, "arm '" + arm.name + "', seed " + std::to_string(seed) + ": " + cause,
               "its output is in " + log.string()};
}

}  // namespace

Status run_turns(const Comparison& comparison, const fs::path& directory, const TurnOptions& options) {
  const int64_t all = static_cast<int64_t>(comparison.arms.size() * comparison.seeds.size()) * comparison.turns;
  int64_t done = 0;
  size_t complete = 0;
  for (const int64_t seed : comparison.seeds) {
    std::vector<int64_t> steps;
    for (const Arm& arm : comparison.arms) {
      const fs::path run = run_of(directory, arm, seed);
      if (is_there(run / "run.toml")) {
        TRY_STATUS(check_run(arm, seed, run));
        // What was there before is looked at before hours of training.
        if (TRY(is_complete(*arm.study, run)))
          if (const auto found = verified_result(run, steps_of(arm)); !found) return of_run(arm, seed, found.error());
      }
      steps.push_back(TRY(steps_done(run)));
    }
    for (int64_t turn = 0; turn < comparison.turns; ++turn)
      for (size_t i = 0; i < comparison.arms.size(); ++i, ++done) {
        // Back and forth, so that none always comes first.
        const size_t a = turn % 2 ? comparison.arms.size() - 1 - i : i;
        const Arm& arm = comparison.arms[a];
        const int64_t until = end_of_turn(steps_of(arm), turn, comparison.turns);
        const fs::path run = run_of(directory, arm, seed);
        // A run that was killed after its last step may lack what it exports.
        const bool last = turn + 1 == comparison.turns;
        if (until == 0 || (last ? TRY(is_complete(*arm.study, run)) : steps[a] >= until)) continue;
        if (options.begins) options.begins(done, all, arm, seed);
        TRY_STATUS(train_turn(arm, seed, run, until, options));
        steps[a] = until;
      }
    if (TRY(options.decided(++complete))) break;
  }
  return ok();
}

}  // namespace galley
