#include "host/commands/run_commands.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "host/base/json.hpp"
#include "host/base/log.hpp"
#include "host/base/new_file.hpp"
#include "host/base/units.hpp"
#include "host/commands/longer.hpp"
#include "host/commands/processes.hpp"
#include "host/commands/stop_signals.hpp"
#include "host/proofs/checks.hpp"
#include "host/session/origins.hpp"
#include "host/session/run.hpp"
#include "host/session/train.hpp"
#include "host/sources/kinds.hpp"
#include "host/tools/gguf/gguf_export.hpp"
#include "host/tools/gguf/modelfile.hpp"
#include "host/tools/inference/export_folder.hpp"
#include "host/tools/inference/folder_study.hpp"
#include "host/tools/inference/gradients.hpp"
#include "host/tools/inference/shards.hpp"
#include "host/tools/inference/text_evaluation.hpp"
#include "host/tools/report/data_report.hpp"
#include "host/tools/report/metrics.hpp"
#include "host/tools/report/plan_report.hpp"
#include "host/tools/report/profile.hpp"
#include "host/tools/report/progress.hpp"
#include "host/tools/report/rounding_report.hpp"
#include "host/tools/report/scores_report.hpp"
#include "host/tools/report/terminal.hpp"

namespace galley {
namespace {

Poison poison_of(const CommandLine& a) { return a.has("--poison") ? Poison::Yes : Poison::No; }

/// What can be done with a run that is over.
void print_done(const Study& study, const std::filesystem::path& directory) {
  print_lines("done: %s\n", directory.c_str());
  if (!study.recipe.save.final) return;
  const std::string run = directory.string();
  std::error_code error;
  const Learning& learning = study.recipe.learning;
  const bool talks = text_data(study.recipe).kind == "chat";
  if (of_rows(learning.labels)) print_lines("  galley predict %s\n", run.c_str());
  else if (learning.labels == Fill::NextTokens || learning.labels == Fill::TargetLabels)
    print_lines("  galley sample %s %s\n", run.c_str(), talks ? "--chat" : "--prompt TEXT");
  else print_lines("  galley eval %s\n", run.c_str());
  print_lines("  galley export %s%s --out NEW\n", run.c_str(), std::filesystem::exists(directory / "adapter", error) ? " --merge" : "");
}

/// The listeners of every run, which come with Galley, but for those that the recipe uses itself. One that cannot be made is left out.
std::vector<std::unique_ptr<const LoadedStrategy>> listeners_of_every_run(const Study& study) {
  std::vector<std::unique_ptr<const LoadedStrategy>> out;
  for (const auto& plugin : study.plugins->all())
    for (const StrategySpec& spec : plugin->manifest.strategies) {
      const bool used = std::ranges::any_of(study.recipe.uses, [&](const Use& use) { return use.name == spec.name; });
      if (!spec.always || used || !study.built_in(*plugin)) continue;
      Result<std::unique_ptr<const LoadedStrategy>> made =
          LoadedStrategy::create(*study.plugins, {spec.name, {}, {plugin->manifest.file.string(), spec.line}, {}});
      if (made) out.push_back(std::move(made).value());
      else log(LogLevel::Warning, made.error().cause + "; the run goes on without it");
    }
  return out;
}

/// What a process that does not lead takes of the command line: rank 0 writes the files.
CommandLine following(CommandLine a) {
  for (const char* file : {"--profile", "--trace", "--reference-out"}) a.flags.erase(file);
  return a;
}

/// Trains with all observers of a run: its files, the terminal, and listeners.
Status train_shown(const CommandLine& given, const Study& study, const OpenSource& open, TextEvaluation* texts,
                   const std::filesystem::path& directory, Party& party) {
  const bool leads = party.leads();
  const CommandLine a = leads ? given : following(given);
  MemoryFile memory;
  MetricsFile metrics;
  GeneratedFile generated;
  Progress progress;
  StopSignals signals;
  TrainOptions options;
  ReferenceShown reference = TRY(ReferenceShown::open(a));
  options.session.watching = reference.watching(poison_of(a), party.alone() ? nullptr : &party);
  Profile profile(study.program, study.target);
  std::optional<Trace> trace;  // opened before the first step, so that a file that cannot be written is found there
  if (a.has("--trace")) trace.emplace(TRY(NewFile::named(a.get("--trace"))), study.program, study.target);
  if (a.has("--profile") || trace)
    options.session.timed = [&](std::span<const TimedInstruction> timed) {
      if (a.has("--profile")) profile.add(timed);
      if (trace) trace->add(timed);
    };
  if (leads) options.observers = {&memory, &metrics, &generated, &progress, &signals};
  else options.observers = {&signals};
  options.session.party = &party;
  TRY_STATUS(look_after(directory, options));
  if (texts) options.write = [&](Session& session, const auto& after) { return texts->run(session, after); };
  const auto listeners = leads ? listeners_of_every_run(study) : std::vector<std::unique_ptr<const LoadedStrategy>>();
  for (const auto& listener : listeners) options.listeners.push_back(listener.get());
  options.stop = StopSignals::stops;
  options.until = TRY(a.integer("--until", 0, 1));
  Status trained = train(study, open, directory, options);
  if (leads) trained = reference.finish(std::move(trained));
  // Of a run that was interrupted or failed, too: what it did up to there is worth a look.
  if (a.has("--profile")) print_lines(profile.text(prose_columns()));
  if (const std::string json = a.has("--profile") ? profile.json() : ""; !json.empty())
    if (Status written = write_atomic(directory / "profile.json", json); trained.ok() && !written.ok()) return written;
  if (trace)
    if (Status written = trace->finish(); trained.ok() && !written.ok()) return written;
  if (trained.ok() && progress.pauses()) print_lines("go on with: galley resume %s\n", directory.c_str());
  else if (trained.ok()) print_done(study, directory);
  return trained;
}

/// "match 0.3750 over 8 texts": of an evaluation.
std::string texts_text(const TextsEvent& written) {
  char match[40] = "";
  if (written.match) std::snprintf(match, sizeof match, "match %.4f over ", *written.match);
  return match + std::to_string(written.texts.size()) + " texts" + (written.match ? "\n" : " written: --json shows them\n");
}

/// Of a validation: with its unit, and what else is said of it where it has no table of labels.
std::string validation_text(const Session::Validation& made, const Study& study) {
  const char* form = study.recipe.learning.labels == Fill::RowValues ? "%.4f, the %s" : "%.4f %s";
  char text[160];
  std::snprintf(text, sizeof text, form, made.loss, study.loss_unit().c_str());
  std::string out = text;
  if (!study.predicts_tokens()) return out;
  for (const ReportedMetric& metric : made.reported) {
    std::snprintf(text, sizeof text, ", %s %.4f", metric.name, metric.value);
    out += text;
  }
  return out;
}

}  // namespace

Result<ReferenceShown> ReferenceShown::open(const CommandLine& a) {
  std::optional<NewFile> file;
  if (a.has("--reference-out")) file.emplace(TRY(NewFile::named(a.get("--reference-out"))));
  return ReferenceShown(a.has("--reference"), std::move(file));
}

std::function<Watching(Plugins&)> ReferenceShown::watching(Poison poison, Party* party) {
  Proofs proofs = {.poison = poison, .reference = asked_ ? &report_ : nullptr};
  if (party) proofs.exchange = [party](std::string_view mine) { return party->texts(mine); };
  return watched_by(proofs);
}

Status ReferenceShown::finish(Status ran) {
  if (!ran.ok() || !asked_) return ran;
  std::fprintf(stderr, "%s\n", report_.text().c_str());
  if (!file_) return ok();
  TRY_STATUS(file_->file().write(report_.json()));
  return file_->finish();
}

namespace {

/// The passes that --without names: those that a program can do without.
Result<std::set<std::string>> passes_without(const CommandLine& a) {
  std::set<std::string> known;
  std::string text;
  for (const PassInfo& pass : pass_list())
    if (pass.only_faster) {
      known.insert(pass.name);
      text += std::string(text.empty() ? "" : ", ") + pass.name;
    }
  std::set<std::string> out;
  for (const std::string& name : a.list("--without")) {
    if (!known.contains(name))
      return recipe_error("--without " + a.get("--without") + ": '" + name + "' is no pass that can be left out", "these can: " + text);
    out.insert(name);
  }
  return out;
}

}  // namespace

Result<StudyOptions> study_options(const CommandLine& a) {
  StudyOptions out;
  out.checks = checks();
  out.kinds = all_kinds;
  out.warn = [](const std::string& line) { log(LogLevel::Warning, line); };
  if (const auto it = a.flags.find("--set"); it != a.flags.end()) {
    for (const std::string& set : it->second) {
      const size_t equals = set.find('=');
      if (equals == std::string::npos || equals == 0) return recipe_error("--set " + set + ": expected NAME=VALUE");
      if (!out.sets.emplace(set.substr(0, equals), set.substr(equals + 1)).second)
        return recipe_error("--set " + set.substr(0, equals) + " is given twice");
    }
  }
  if (const auto it = a.flags.find("--use"); it != a.flags.end()) out.given_uses = it->second;
  if (const auto it = a.flags.find("--plugin-path"); it != a.flags.end()) out.plugin_path.assign(it->second.begin(), it->second.end());
  out.confine = a.has("--confine") ? Confine::Yes : Confine::No;
  out.unconfined = a.has("--unconfined");
  if (out.unconfined && a.has("--confine")) return recipe_error("--confine and --unconfined say the contrary", "give one of them");
  out.without = TRY(passes_without(a));
  out.command = a.typed;
  out.device = a.get("--device", "cpu");
  out.target = a.get("--target");
  if (a.has("--target") && out.target.empty()) return recipe_error("--target '' names no target", "a TOML file, or the name of a target");
  if (a.has("--memory")) {
    const auto bytes = parse_bytes(a.get("--memory"));
    if (!bytes) return recipe_error("--memory: " + bytes.error().cause, bytes.error().hint);
    out.memory_limit = *bytes;
  }
  out.lanes.lanes = TRY(a.integer("--lanes", 0, 1));
  out.lanes.ranks = TRY(a.integer("--ranks", 1, 1));
  out.lanes.rank = TRY(a.integer("--rank", 0, 0));
  if (out.lanes.rank >= out.lanes.ranks)
    return recipe_error("--rank " + std::to_string(out.lanes.rank) + ": --ranks " + std::to_string(out.lanes.ranks) +
                        " are numbered from 0 to " + std::to_string(out.lanes.ranks - 1));
  return out;
}

Result<std::unique_ptr<Source>> open_source_shown(const Study& study) {
  BytesProgress progress("preparing the data");
  StopSignals signals;
  signals.install();  // an interrupted preparation has to remove what it has written
  return open_source(study, [&](uint64_t done, uint64_t total) -> Status {
    progress.update(done, total);
    if (StopSignals::asked())
      return Error{Exit::Interrupted, "interrupted while the data was being prepared", "nothing was kept; start the command again"};
    return ok();
  });
}

std::vector<RunRecord::DataUsed> data_used(const Source& source) {
  std::vector<RunRecord::DataUsed> out;
  for (const DataReport& report : source.reports()) out.push_back({report.kind, facts_of(report)});
  return out;
}

void warn_of(const Source& source, const std::function<void(const std::string&)>& warn) {
  for (const DataReport& report : source.reports())
    if (const std::string text = truncation_warning(report); !text.empty()) warn(text);
}

std::string epochs_of(const Study& study, const Source& source) {
  const Program& program = study.program;
  return epochs_text(study.recipe.steps, study.recipe.epochs, program.micro_batches * program.rows, source.epoch(),
                     program.window_tokens > 0);
}

namespace {

/// Where processes find each other: beside the run's directory, which is not there yet.
std::filesystem::path meeting_of(const std::filesystem::path& directory) {
  std::error_code error;  // what is wrong with the path is said by who makes the directory
  return std::filesystem::absolute(directory, error).parent_path();
}

/// One process prepares the data; the others then find it prepared.
Result<std::unique_ptr<Source>> open_in_turns(const Study& s, Party& party) {
  std::unique_ptr<Source> out;
  const auto open = [&]() -> Status {
    out = TRY(open_source_shown(s));
    return ok();
  };
  TRY_STATUS(party.in_turns(open));
  return out;
}

void print_training(const Study& s, const Party& party) {
  if (!party.alone()) print_lines("%s\n", described(party.place(), party.machines()).c_str());
  print_lines("training %s: %s parameters, %s of them trained, %s planned\n", s.model.model_type.c_str(),
              count_text(static_cast<double>(s.program.parameters)).c_str(), count_text(static_cast<double>(s.program.trainable)).c_str(),
              bytes_text(s.peak_memory()).c_str());
  std::fflush(stdout);
}

}  // namespace

Status command_train(const CommandLine& a) {
  StudyOptions options = TRY(study_options(a));
  const std::filesystem::path out = a.get("--out");
  Party& party = *TRY(join_processes(options, meeting_of(out)));
  std::unique_ptr<Study> s;
  std::unique_ptr<TextEvaluation> texts;
  const auto plan = [&]() -> Status {
    s = TRY(study(a.positional[0], options));
    TRY_STATUS(check_files(s->program, s->draft->ignored_files));
    if (party.leads()) TRY_STATUS(check_vacant(out));
    texts = TRY(TextEvaluation::open(*s));
    return ok();
  };
  TRY_STATUS(party.first_error(plan()));
  std::unique_ptr<Source> source = TRY(open_in_turns(*s, party));
  TRY_STATUS(settle_steps(*s, *source, options.warn));
  warn_of(*source, options.warn);
  const auto create = [&]() -> Status {
    RunRecord record = TRY(record_of(*s, options.device, *source, data_used(*source)));
    record.command = a.typed;
    return create_run(out, record, options.warn);
  };
  TRY_STATUS(party.once(create));
  print_training(*s, party);
  for (const DataReport& report : source->reports()) print_lines(data_line(report));
  const std::string epochs = epochs_of(*s, *source);
  if (!epochs.empty()) print_lines("  %s\n", epochs.c_str());
  std::fflush(stdout);
  Status trained = train_shown(
      a, *s, [&] { return std::move(source); }, texts.get(), out, party);
  if (!trained && party.leads()) {
    // The person will correct the recipe or the plugin and try again with the same directory.
    const Exit exit = trained.error().exit;
    if (exit == Exit::Recipe || exit == Exit::Plugin || exit == Exit::DoesNotFit) discard_run(out);
  }
  return trained;
}

Status command_resume(const CommandLine& a) {
  const std::filesystem::path directory = a.positional[0];
  StudyOptions options = TRY(study_options(a));
  options.longer = TRY(longer_asked(a));
  // Which plugin joins the processes depends on the device. What is wrong with the record is said below, once for all of them.
  if (const Result<RunRecord> record = open_run(directory)) options.device = record->device;
  Party& party = *TRY(join_processes(options, meeting_of(directory)));
  std::optional<Run> studied;
  std::unique_ptr<TextEvaluation> texts;
  const auto plan = [&]() -> Status {
    const RunRecord record = TRY(open_run(directory));
    confine_run(record, directory, &options);
    if (!a.has("--recorded")) TRY_STATUS(check_recipe(record, directory));
    studied = TRY(study_run(directory, options));
    TRY_STATUS(check_origins(studied->record, *studied->study, directory));
    texts = TRY(TextEvaluation::open(*studied->study));
    return ok();
  };
  TRY_STATUS(party.first_error(plan()));
  const Run& run = *studied;
  const auto open = [&]() -> Result<std::unique_ptr<Source>> {
    std::unique_ptr<Source> source = TRY(open_in_turns(*run.study, party));
    TRY_STATUS(settle_steps(*run.study, *source, [](const std::string&) {}));
    TRY_STATUS(check_data_files(run.record, *run.study, *source, directory));
    return source;
  };
  print_training(*run.study, party);
  if (!options.longer.given()) return train_shown(a, *run.study, open, texts.get(), directory, party);
  std::unique_ptr<Source> source = TRY(open());
  const std::filesystem::path out = a.get("--out");
  const auto create = [&]() -> Status {
    print_lines(TRY(begin_longer(run, *source, directory, out, options)));
    return ok();
  };
  TRY_STATUS(party.once(create));
  std::fflush(stdout);
  return train_shown(
      a, *run.study, [&] { return std::move(source); }, texts.get(), out, party);
}

Status command_eval(const CommandLine& a) {
  const std::filesystem::path what = a.positional[0];
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Evaluate;
  const bool run = std::filesystem::is_directory(what);
  if (run && TRY(kind_of_folder(what)) != FolderKind::Run)
    return recipe_error("galley eval: " + what.string() + " is a model or an adapter, and no run: it has no data to evaluate on",
                        "write a recipe with this model and the data to evaluate on");
  for (const char* flag : {"--set", "--use", "--device"})
    if (run && a.has(flag)) return recipe_error(std::string("galley eval: ") + flag + " applies to a recipe only; a run uses its own");
  std::unique_ptr<Study> s;
  if (run) s = TRY(study_run(what, options)).study;
  else s = TRY(study(what, options));
  const auto texts = TRY(TextEvaluation::open(*s));
  std::unique_ptr<Source> source = TRY(open_source_shown(*s));
  ReferenceShown reference = TRY(ReferenceShown::open(a));
  const auto session = TRY(Session::open(*s, std::move(source), reference.options()));
  if (run) TRY_STATUS(load_weights_of_run(*session, what));
  // Where texts are asked for, there may be no data that is held out.
  const bool validates = session->evaluates() || !texts;
  const Session::Validation made = validates ? TRY(session->evaluate()) : Session::Validation();
  const Scores* scores = validates ? session->scores() : nullptr;
  std::optional<TextsEvent> written;
  if (texts) written = TRY(texts->run(*session, [](int64_t, int64_t) { return ok(); }));
  if (a.has("--json")) {
    Table out = scores ? scores_json(*scores, s->recipe.learning) : Table();
    if (validates) out.emplace("validation_loss", Value(made.loss));
    for (const ReportedMetric& metric : made.reported) out.emplace(metric.name, Value(metric.value));
    if (written) {
      if (written->match) out.emplace("match", Value(*written->match));
      List all;
      for (const WrittenText& text : written->texts) all.push_back(Value(written_json(text)));
      out.emplace("texts", Value(std::move(all)));
    }
    std::printf("%s\n", to_json(Value(std::move(out))).c_str());
  } else {
    if (validates) std::printf("validation loss %s\n", validation_text(made, *s).c_str());
    if (scores) print_lines(scores_text(*scores, s->recipe.learning));
    if (written) print_lines(texts_text(*written));
  }
  return reference.finish(ok());
}

namespace {

/// What --format and --dtype ask for: with --format gguf a type of GGUF files, else a dtype.
Status check_format(const CommandLine& a) {
  const std::string format = a.get("--format", "hf"), dtype = a.get("--dtype");
  if (format != "hf" && format != "gguf")
    return recipe_error("galley export: --format '" + format + "' is not a format", "hf (a folder in Hugging Face's format) or gguf");
  for (const char* flag : {"--unchecked", "--modelfile"})
    if (format == "hf" && a.has(flag)) return recipe_error(std::string("galley export: ") + flag + " requires --format gguf");
  if (!a.has("--dtype") || (format == "gguf" ? gguf_type(dtype) != nullptr : dtype_named(dtype) != 0)) return ok();
  return recipe_error("galley export: --dtype '" + dtype + "' is not a dtype to save in",
                      format == "gguf"   ? gguf_type_names()
                      : gguf_type(dtype) ? "f32, bf16 or f16; with --format gguf also " + dtype
                                         : "f32, bf16 or f16");
}

/// What --shard says.
Result<int64_t> shard_bytes(const CommandLine& a) {
  if (!a.has("--shard")) return kShardBytes;
  if (a.get("--format") == "gguf")
    return recipe_error("galley export: --shard is for folders in Hugging Face's format", "a GGUF file is one");
  const Result<int64_t> bytes = parse_bytes(a.get("--shard"));
  if (!bytes) return recipe_error("galley export: --shard: " + bytes.error().cause, bytes.error().hint);
  if (*bytes < 1) return recipe_error("galley export: --shard '" + a.get("--shard") + "' leaves no room for a tensor");
  return *bytes;
}

/// Whether what was trained makes a head of its own of an embedding that was the head.
bool unties(const Study& study) {
  return std::ranges::any_of(study.draft->exports.config,
                             [](const ConfigKey& key) { return key.key == "tie_word_embeddings" && key.json == "false"; });
}

Status export_gguf(const CommandLine& a, FolderStudy folder, const StudyOptions& options) {
  const std::filesystem::path out = a.get("--out"), what = std::filesystem::path(a.positional[0]).lexically_normal();
  GgufRequest request;
  request.out = out;
  request.type = a.get("--dtype");
  request.name = (what.has_filename() ? what : what.parent_path()).stem().string();
  request.reads_again = !a.has("--unchecked");
  request.options = options;
  GgufExport job = TRY(GgufExport::prepare(*folder.study, std::move(request)));
  std::optional<NewFile> modelfile;
  std::string ollama;
  std::vector<std::string> notes;
  if (a.has("--modelfile")) {
    if (job.is_adapter())
      return recipe_error("galley export: a Modelfile of an adapter has to name its base model as Ollama calls it, which nobody says here",
                          "--merge writes one model");
    const std::filesystem::path place = a.get("--modelfile");
    std::error_code error;
    const std::filesystem::path named = out.lexically_normal(), beside = place.lexically_normal().parent_path();
    const std::string from =
        named.parent_path() == beside ? "./" + named.filename().string() : std::filesystem::absolute(named, error).string();
    ollama = TRY(modelfile_text(*folder.study, from, job.context(), &notes));
    modelfile.emplace(TRY(NewFile::named(place)));
  }
  {
    ReferenceShown reference = TRY(ReferenceShown::open(a));
    const auto session = TRY(folder.open(reference.options()));
    TRY_STATUS(reference.finish(job.take(*session)));
  }
  const bool untied = unties(*folder.study);
  folder = {};  // the model leaves the memory before that of the file is read
  BytesProgress progress("writing the file");
  StopSignals signals;
  signals.install();  // what was written so far has to be removed
  const GgufWritten written = TRY(job.finish([&](uint64_t done, uint64_t total) -> Status {
    progress.update(done, total);
    if (StopSignals::asked()) return Error{Exit::Interrupted, "interrupted while the file was being written", "nothing was kept"};
    return ok();
  }));
  if (modelfile) {
    TRY_STATUS(modelfile->file().write(ollama));
    TRY_STATUS(modelfile->finish());
  }
  notes.insert(notes.begin(), written.notes.begin(), written.notes.end());
  for (const std::string& note : notes) log(LogLevel::Warning, note);
  if (a.has("--json")) {
    Table json = {{"exported", Value(out.string())}, {"bytes", Value(static_cast<int64_t>(written.bytes))}};
    if (written.apart)
      json["read_again"] = Value(Table{{"positions", Value(written.apart->positions)},
                                       {"apart", Value(written.apart->apart)},
                                       {"divergence", Value(written.apart->divergence)},
                                       {"same", Value(written.apart->same)}});
    std::printf("%s\n", to_json(Value(std::move(json)), 2).c_str());
    return ok();
  }
  print_lines("exported: %s, %s\n", out.c_str(), bytes_text(static_cast<int64_t>(written.bytes)).c_str());
  if (written.apart) print_lines("%s\n", apart_text(*written.apart).c_str());
  if (untied) print_lines("the head is no longer the embedding: it is saved apart, as output.weight\n");
  return ok();
}

}  // namespace

Status command_export(const CommandLine& a) {
  const std::filesystem::path what = a.positional[0], out = a.get("--out");
  std::error_code error;
  const bool recipe = std::filesystem::is_regular_file(what, error);
  const FolderKind kind = recipe ? FolderKind::Model : TRY(kind_of_folder(what));
  for (const char* flag : {"--set", "--use"})
    if (!recipe && a.has(flag)) return recipe_error(std::string("galley export: ") + flag + " applies to a recipe only");
  if (kind != FolderKind::Adapter && a.has("--base"))
    return recipe_error("galley export: --base applies to an adapter's folder only; a run knows its base model");
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Export;
  options.merges = a.has("--merge");
  TRY_STATUS(check_format(a));
  const bool gguf = a.get("--format") == "gguf";
  const int64_t shard = TRY(shard_bytes(a));
  options.export_dtype = gguf && a.has("--dtype") ? "f32" : a.get("--dtype");  // the types of GGUF files are rounded from F32, once
  if (!gguf) TRY_STATUS(check_vacant(out));
  FolderStudy folder;
  if (recipe) {
    options.single_row = true;
    folder.study = TRY(study(what, options));
  } else {
    folder = TRY(study_folder(what, {a.get("--base"), 1}, options));
  }
  if (gguf) return export_gguf(a, std::move(folder), options);
  ReferenceShown reference = TRY(ReferenceShown::open(a));
  const auto session = TRY(folder.open(reference.options()));
  TRY_STATUS(reference.finish(export_folder(*session, out, shard)));
  const int64_t bytes = disk_use(folder.study->program, folder.study->recipe).exported;
  const auto share = taken_of_trained(session->rounded());
  if (a.has("--json"))
    std::printf("%s\n", to_json(Value(Table{{"exported", Value(out.string())},
                                            {"bytes", Value(bytes)},
                                            {"rounded", rounding_json(session->rounded())},
                                            {"rounding_of_trained", share ? Value(*share) : Value()}}),
                                2)
                            .c_str());
  else
    print_lines("exported: %s, %s on disk\n%s", out.c_str(), bytes_text(bytes).c_str(),
                rounding_text(session->rounded(), prose_columns()).c_str());
  if (!a.has("--json") && unties(*folder.study))
    print_lines("the head is no longer the embedding: it is saved apart, and config.json says \"tie_word_embeddings\": false\n");
  return ok();
}

Status command_gradients(const CommandLine& a) {
  StudyOptions options = TRY(study_options(a));
  options.purpose = Purpose::Gradients;
  options.keep_logits = a.has("--logits");
  const auto s = TRY(study(a.positional[0], options));
  if (options.keep_logits && s->program.micro_batches > 1)
    return recipe_error("--logits needs a window of one micro-batch; this recipe's window has " + std::to_string(s->program.micro_batches),
                        "omit --logits, or make the window one micro-batch");
  NewFile out = TRY(NewFile::named(a.get("--out")));
  ReferenceShown reference = TRY(ReferenceShown::open(a));
  const auto session = TRY(Session::open(*s, TRY(open_source_shown(*s)), reference.options()));
  return reference.finish(write_gradients(*session, out));
}

}  // namespace galley
