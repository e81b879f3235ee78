#include "host/commands/longer.hpp"

#include <cstdio>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "host/base/new_file.hpp"
#include "host/base/shell.hpp"
#include "host/commands/run_commands.hpp"
#include "host/exec/folder.hpp"
#include "host/plugins/options.hpp"
#include "host/session/run_lock.hpp"
#include "host/session/train.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// Copies what a folder or file holds, if it is there; links are followed. Everything is on the disk afterwards.
Status copy_whole(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::exists(from, error)) return ok();
  if (!fs::is_directory(from, error)) {
    const File in = TRY(File::open_read(from));
    File out = TRY(File::create(to));
    std::vector<std::byte> bytes(size_t{1} << 20);
    for (uint64_t at = 0;;) {
      const size_t n = TRY(in.read_some(bytes, at));
      if (n == 0) return out.sync();
      TRY_STATUS(out.write(std::span(bytes).first(n)));
      at += n;
    }
  }
  TRY_STATUS(make_directories(to));
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(from, error)) parts.push_back(entry.path());
  if (error) return file_error("list", from, error.value());
  for (const fs::path& part : parts) TRY_STATUS(copy_whole(part, to / part.filename()));
  return sync_directory(to);
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

/// The values that schedules have over the new number of steps, where they had others over the old one.
Result<std::string> schedules_text(const Run& run, const StudyOptions& options, int64_t applied) {
  StudyOptions then = options;
  static_cast<RecipeInput&>(then) = run.record.input;
  then.steps = run.record.steps;
  const Recipe recipe = TRY(read_recipe(run.record.recipe, recipe_options(then)));
  const Study& study = *run.study;
  std::map<size_t, std::unique_ptr<const Options>> of_use;
  std::string out;
  for (const ScalarSlot& slot : study.program.slots) {
    if (slot.which) continue;
    auto& options_then = of_use[slot.use];
    if (!options_then) options_then = TRY(Options::create(study.loaded[slot.use]->spec(), recipe.uses[slot.use]));
    const Schedule* old = options_then->schedule(slot.option.substr(slot.option.rfind('.') + 1));
    if (!old || old->table == slot.schedule.table) continue;
    out += "  " + slot.option + " = " + slot.schedule.text + " is asked for " + std::to_string(study.recipe.steps) +
           " steps: " + number(slot.schedule.at(applied + 1)) + " at the next one, after " + number(old->at(applied)) + " at the last\n";
  }
  return out;
}

}  // namespace

Result<RunLength> longer_asked(const CommandLine& a) {
  RunLength out;
  if (a.has("--steps") && a.has("--epochs"))
    return recipe_error("--steps and --epochs both say how long the run is to be", "give one of them");
  out.steps = TRY(a.integer("--steps", 0, 1));
  if (out.steps > kMostSteps)
    return recipe_error("--steps " + a.get("--steps") + ": a run has at most " + std::to_string(kMostSteps) + " steps");
  out.epochs = TRY(a.number("--epochs", 0, 1e-6, 1e9));
  if (!out.given()) {
    if (a.has("--out"))
      return recipe_error("--out applies to a run that goes on after its end", "say how long it is to be: --steps or --epochs");
    return out;
  }
  if (!a.has("--out"))
    return recipe_error("a run that goes on after its end is a run of its own, and --out is missing",
                        "name a new directory for it: --out DIR; the run in " + a.positional[0] + " stays as it is");
  TRY_STATUS(check_vacant(a.get("--out")));
  return out;
}

Result<std::string> begin_longer(const Run& run, const Source& source, const fs::path& directory, const fs::path& given,
                                 const StudyOptions& options) {
  const Study& study = *run.study;
  const std::string name = directory.string();
  if (!run.record.own && !options.unconfined)
    return recipe_error(name + ": this run has no mark of yours, and one that goes on from it would have",
                        "if you trust it, --unconfined makes a run of yours of it");
  const RunLock lock = TRY(RunLock::take(directory));
  const auto latest = TRY(find_latest(directory / "state"));
  if (!latest)
    return recipe_error(name + ": this run has no state to go on from",
                        "train on from its model in a new run: model { path = " + shell_word((directory / "model").string()) + " }");
  const StateInfo state = TRY(read_state(*latest));
  if (!state.ended.empty() || TRY(ends_with(study, *latest)))
    return recipe_error(name + ": this run has ended early, after step " + std::to_string(state.attempted) +
                            (state.ended.empty() ? ", by the patience of its recipe" : ": " + state.ended),
                        "train on from its model in a new run, whose recipe does not end it there");
  if (study.recipe.steps <= state.attempted)
    return recipe_error(name + ": this run has done " + std::to_string(state.attempted) + " steps, and would be " +
                            std::to_string(study.recipe.steps) + " steps long",
                        "say how long it is to be in all: --steps " + std::to_string(2 * state.attempted));

  const std::string schedules = TRY(schedules_text(run, options, state.applied));
  RunRecord record = TRY(record_of(study, run.record.device, source, data_used(source)));
  record.input.directory = run.record.input.directory;
  record.command = options.command;
  record.continues = TRY(absolute_folder(directory));

  const fs::path out = TRY(absolute_folder(given));
  TRY_STATUS(make_directories(out.parent_path()));
  const NewFolder made = TRY(NewFolder::beside(out));
  TRY_STATUS(create_run(made.path(), record, options.warn));
  TRY_STATUS(copy_whole(*latest, made.path() / "state" / latest->filename()));
  for (const char* part : {best_folder, "choices.json", "metrics.jsonl", "generated.jsonl"})
    TRY_STATUS(copy_whole(directory / part, made.path() / part));
  TRY_STATUS(sync_directory(made.path()));
  TRY_STATUS(rename_synced(made.path(), out));
  return "goes on from step " + std::to_string(state.attempted) + " of " + name + ", which stays as it is, to step " +
         std::to_string(study.recipe.steps) + "\n" + schedules;
}

}  // namespace galley
