#include "host/session/run.hpp"

#include <ctime>

#include "host/base/confinement.hpp"
#include "host/base/json.hpp"
#include "host/base/shell.hpp"
#include "host/base/units.hpp"
#include "host/session/origins.hpp"

namespace galley {

Result<RunRecord> record_of(const Study& study, const std::string& device, const Source& source, std::vector<RunRecord::DataUsed> data) {
  RunRecord out;
  out.version = GALLEY_VERSION;
  out.begun = time_text(std::time(nullptr));
  out.recipe = study.recipe.path;
  out.input = study.recipe;
  out.unit = study.loss_unit();
  if (study.recipe.model.labels == 0) out.labels = study.recipe.model.label_names;
  std::error_code error;
  out.input.directory = std::filesystem::current_path(error);
  if (error) return run_error("the current directory cannot be found: " + error.message(), "go to one that exists");
  out.device = device;
  out.seed = study.recipe.seed;
  out.steps = study.recipe.steps;
  out.head_rows = study.program.head_rows;
  out.lanes = study.program.lanes;
  out.target = target_toml(study.target);
  out.machine = study.machine;
  out.plugins = TRY(plugins_of(study));
  for (const Program::Chosen& k : study.program.kernels) out.kernels.push_back(k.op + ": " + k.kernel + " (" + k.plugin + ")");
  for (const auto& s : study.loaded) out.strategies.push_back({s->name(), to_json(Value(s->options().values()))});
  out.data = std::move(data);
  out.origins = TRY(origins_of(study));
  for (Origin& origin : TRY(origins_of(study, source))) out.origins.push_back(std::move(origin));
  return out;
}

namespace {

/// What a command does with a run that it does not continue.
const char* doing(Purpose purpose) {
  switch (purpose) {
    case Purpose::Evaluate: return "evaluate";
    case Purpose::Sample: return "sample";
    case Purpose::Embed: return "embed with";
    case Purpose::Predict: return "predict with";
    case Purpose::Export: return "export";
    default: return nullptr;
  }
}

/// A run is data: it loads no program by its own word. It says where its plugins were, which is offered to whoever trusts them.
Status check_plugins_named(const RunRecord& record, const std::filesystem::path& directory, const StudyOptions& options) {
  const std::filesystem::path built_in[] = {options.installation.plugins};
  const auto named = Plugins::scan(plugin_search_path(built_in, options.plugin_path), [](const std::string&) {});
  std::string missing, words;
  for (const auto& plugin : record.plugins) {
    if (named->find(plugin.id)) continue;
    missing += (missing.empty() ? "plugin '" : ", plugin '") + plugin.id + "' " + plugin.version;
    words += " --plugin-path " + shell_word(plugin.folder);
  }
  if (missing.empty()) return ok();
  return recipe_error(directory.string() + ": this run needs " + missing + ", which is not on the plugin path",
                      "a run loads no program by its own word; if you trust what lies where it says: " + options.command + words +
                          " (or GALLEY_PLUGIN_PATH)");
}

}  // namespace

void confine_run(const RunRecord& record, const std::filesystem::path& directory, StudyOptions* options) {
  const bool asked = options->confine == Confine::Yes;
  if (options->within || options->unconfined || (record.own && !asked)) return;
  options->within = std::make_shared<Confinement>(std::vector{directory}, "the run's folder",
                                                  std::string(asked ? "without --confine" : "--unconfined lets") + " the run read" +
                                                      (asked ? "s" : "") + " what it recorded: files that its maker chose");
  if (!asked && options->warn)
    options->warn(directory.string() +
                  ": this run has no mark of yours, so it reads files of its own folder only; --unconfined lets it read what it recorded");
}

Result<Run> study_run(const std::filesystem::path& directory, StudyOptions options) {
  Run run;
  run.record = TRY(open_run(directory));
  const RunRecord& record = run.record;
  TRY_STATUS(check_plugins_named(record, directory, options));
  confine_run(record, directory, &options);
  options.unconfined = false;
  const RunLength longer = options.longer.given() ? options.longer : record.input.longer;
  options.steps = options.longer.given() ? 0 : record.steps;
  static_cast<RecipeInput&>(options) = record.input;
  options.longer = longer;
  options.device = record.device;
  options.target_text = record.target;
  options.head_rows = record.head_rows;
  options.lanes.lanes = record.lanes;
  options.labels = record.labels;
  options.of_run = true;
  options.single_row = options.purpose == Purpose::Sample || options.purpose == Purpose::Embed || options.purpose == Purpose::Predict ||
                       options.purpose == Purpose::Export;
  run.study = TRY(study(record.recipe, options));
  if (const char* what = doing(options.purpose)) TRY_STATUS(check_files_of_model(record, *run.study, directory, what));
  return run;
}

Result<std::optional<std::filesystem::path>> find_best(const std::filesystem::path& directory, const ValidationRecord& said) {
  const std::filesystem::path folder = directory / best_folder;
  auto best = TRY(find_latest(folder));
  // A later one was saved just before the process was killed.
  if (said.best_step == 0 || (best && step_of(*best) >= said.best_step)) return best;
  std::string hint = "put it back";
  if (const auto latest = TRY(find_latest(directory / "state")))
    hint += ", or let the newest state stand for it: mkdir -p " + shell_word(folder.string()) + " && cp -r " +
            shell_word(latest->string()) + " " + shell_word(folder.string() + "/");
  return recipe_error(
      folder.string() + ": the state of step " + std::to_string(said.best_step) + ", which had the lowest validation loss, is not there",
      hint);
}

Result<std::optional<std::filesystem::path>> find_weights(const Recipe& recipe, const std::filesystem::path& directory) {
  auto latest = TRY(find_latest(directory / "state"));
  if (!recipe.save.best) return latest;
  // A newest state that is damaged does not say which was the best one; whoever reads it says what is wrong with it.
  const auto info = latest ? read_state(*latest) : Result<StateInfo>(StateInfo());
  auto best = TRY(find_best(directory, info ? info->validation : ValidationRecord()));
  return best ? best : latest;
}

Error nothing_saved(const std::filesystem::path& directory) {
  return recipe_error(directory.string() + ": this run has saved nothing yet", "let it come to its first save");
}

Status load_weights_of_run(Session& session, const std::filesystem::path& directory) {
  const auto state = TRY(find_weights(session.study().recipe, directory));
  if (!state) return nothing_saved(directory);
  return session.load_weights(*state);
}

}  // namespace galley
