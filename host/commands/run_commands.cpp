#include "host/commands/run_commands.hpp"

#include <cmath>
#include <cstdio>

#include "host/base/json.hpp"
#include "host/commands/stop_signals.hpp"
#include "host/report/data_report.hpp"
#include "host/report/metrics.hpp"
#include "host/report/plan_report.hpp"
#include "host/report/progress.hpp"
#include "host/report/tensorboard.hpp"
#include "host/session/run_directory.hpp"
#include "host/session/train.hpp"

namespace galley {
namespace {

/// The record of a new run.
Result<RunRecord> record_of(const Study& study, const StudyOptions& options, const Source& source) {
  RunRecord out;
  out.version = GALLEY_VERSION;
  out.recipe = study.recipe.path;
  out.recipe_text = study.recipe.text;
  out.sets = study.recipe.sets;
  out.working_directory = std::filesystem::current_path();
  for (const auto& p : options.plugin_path) out.plugin_path.push_back(std::filesystem::absolute(p).string());
  out.device = options.device;
  out.seed = study.recipe.seed;
  out.steps = study.recipe.steps;
  out.target = target_toml(study.target);
  for (const auto& p : study.plugins->all()) {
    if (!p->entry) continue;
    std::string hash = TRY(hash_files(p->open_files()));
    out.plugins.push_back({p->manifest.id, p->manifest.version, p->manifest.state_version, std::move(hash)});
  }
  for (const auto& s : study.loaded) out.strategies.push_back({s->name(), to_json(Value(s->options().values()))});
  for (const DataReport& report : source.reports()) out.data.push_back({report.kind, facts_of(report)});
  return out;
}

Poison poison_of(const CommandLine& a) { return a.has("--poison") ? Poison::Yes : Poison::No; }

/// Trains with everything that listens to a run: its files, and the terminal.
Status train_shown(const Study& study, std::unique_ptr<Source> source, const std::filesystem::path& directory, Poison poison) {
  MemoryFile memory;
  MetricsFile metrics;
  EventsFile events;
  Progress progress;
  TrainOptions options;
  options.session.poison = poison;
  options.observers = {&memory, &metrics, &events, &progress};
  options.stop = StopSignals::asked;
  return train(
      study, std::move(source), [&] { return open_source_shown(study); }, directory, options);
}

}  // namespace

Result<StudyOptions> study_options(const CommandLine& a) {
  StudyOptions out;
  if (const auto it = a.flags.find("--set"); it != a.flags.end()) {
    for (const std::string& set : it->second) {
      const size_t equals = set.find('=');
      if (equals == std::string::npos || equals == 0) return recipe_error("--set " + set + ": NAME=VALUE is wanted");
      if (!out.sets.emplace(set.substr(0, equals), set.substr(equals + 1)).second)
        return recipe_error("--set " + set.substr(0, equals) + " is given twice");
    }
  }
  if (const auto it = a.flags.find("--plugin-path"); it != a.flags.end()) out.plugin_path.assign(it->second.begin(), it->second.end());
  out.device = a.get("--device", "cpu");
  out.target = a.get("--target");
  if (a.has("--memory")) {
    const auto bytes = parse_bytes(a.get("--memory"));
    if (!bytes) return recipe_error("--memory: " + bytes.error().cause, bytes.error().hint);
    out.memory_limit = *bytes;
  }
  return out;
}

Result<std::unique_ptr<Source>> open_source_shown(const Study& study) {
  BytesProgress progress("preparing the data");
  return open_source(study, [&](uint64_t done, uint64_t total) -> Status {
    progress.update(done, total);
    if (StopSignals::asked())
      return Error{Exit::Interrupted, "interrupted while the data was being prepared", "nothing is left of it; begin again"};
    return ok();
  });
}

Result<std::unique_ptr<Study>> study_run(const std::filesystem::path& directory, Purpose purpose) {
  const RunRecord record = TRY(open_run(directory));
  StudyOptions options;
  options.sets = record.sets;
  options.plugin_path.assign(record.plugin_path.begin(), record.plugin_path.end());
  options.device = record.device;
  options.target_text = record.target;
  options.recipe_text = record.recipe_text;
  options.directory = record.working_directory;
  options.purpose = purpose;
  options.single_row = purpose == Purpose::Sample;
  return study(record.recipe, options);
}

Status load_newest(Session& session, const std::filesystem::path& directory) {
  const auto latest = TRY(find_latest(directory / "state"));
  if (!latest) return recipe_error(directory.string() + ": this run has saved nothing yet", "let it come to its first save");
  return session.resume(*latest, StatePart::Some);
}

Status command_train(const CommandLine& a) {
  const StopSignals signals;
  const StudyOptions options = TRY(study_options(a));
  const auto s = TRY(study(a.positional[0], options));
  TRY_STATUS(check_files(s->program, s->graph->ignored_files));
  const std::filesystem::path out = a.get("--out");
  TRY_STATUS(check_vacant(out));
  std::unique_ptr<Source> source = TRY(open_source_shown(*s));
  if (StopSignals::asked()) return Error{Exit::Interrupted, "interrupted before the run began", ""};
  const RunRecord record = TRY(record_of(*s, options, *source));
  TRY_STATUS(create_run(out, record));
  std::printf("training %s: %s parameters, %s of them trained, %s planned\n", s->model.model_type.c_str(),
              count_text(static_cast<double>(s->program.parameters)).c_str(), count_text(static_cast<double>(s->program.trainable)).c_str(),
              bytes_text(s->peak_memory()).c_str());
  for (const DataReport& report : source->reports()) std::fputs(data_line(report).c_str(), stdout);
  if (source->epoch() > 0 && s->program.window_tokens == 0) {
    const int64_t rows = s->recipe.steps * s->program.micro_batches * s->program.rows;
    std::printf("  the run takes %s rows: %.2f epochs\n", grouped(static_cast<uint64_t>(rows)).c_str(),
                static_cast<double>(rows) / static_cast<double>(source->epoch()));
  }
  std::fflush(stdout);
  Status trained = train_shown(*s, std::move(source), out, poison_of(a));
  if (!trained) {
    // What is wrong with the recipe or a plugin will be put right and tried again, in the same place.
    const Exit exit = trained.error().exit;
    if (exit == Exit::Recipe || exit == Exit::Plugin || exit == Exit::DoesNotFit) discard_run(out);
    return trained;
  }
  std::printf("done: %s\n", out.c_str());
  return ok();
}

Status command_resume(const CommandLine& a) {
  const StopSignals signals;
  const std::filesystem::path directory = a.positional[0];
  const auto s = TRY(study_run(directory, Purpose::Train));
  TRY_STATUS(train_shown(*s, nullptr, directory, poison_of(a)));
  std::printf("done: %s\n", directory.c_str());
  return ok();
}

Status command_eval(const CommandLine& a) {
  const std::filesystem::path what = a.positional[0];
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Evaluate;
  const bool run = std::filesystem::is_directory(what);
  const auto s = TRY(run ? study_run(what, Purpose::Evaluate) : study(what, options));
  std::unique_ptr<Source> source = TRY(open_source_shown(*s));
  const auto session = TRY(Session::open(*s, std::move(source)));
  if (run) TRY_STATUS(load_newest(*session, what));
  const double loss = TRY(session->evaluate());
  if (a.has("--json")) std::printf("{\"validation_loss\": %.17g}\n", loss);
  else std::printf("validation loss %.4f nats a token, perplexity %.3f\n", loss, std::exp(loss));
  return ok();
}

Status command_gradients(const CommandLine& a) {
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Gradients;
  options.keep_logits = a.has("--logits");
  const auto s = TRY(study(a.positional[0], options));
  if (options.keep_logits && s->program.micro_batches > 1)
    return recipe_error("--logits are those of one micro-batch, and this recipe's window has " + std::to_string(s->program.micro_batches),
                        "leave --logits out, or make the window one micro-batch");
  const auto session = TRY(Session::open(*s, TRY(open_source_shown(*s))));
  return write_gradients(*session, a.get("--out"));
}

}  // namespace galley
