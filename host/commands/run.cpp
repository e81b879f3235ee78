#include "host/commands/run.hpp"

#include <csignal>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "host/base/json.hpp"
#include "host/base/ordered.hpp"
#include "host/data/loader.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/proof.hpp"
#include "host/exec/state.hpp"
#include "host/report/data_report.hpp"
#include "host/report/plan_report.hpp"
#include "host/report/progress.hpp"
#include "host/report/tensorboard.hpp"

namespace galley {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

/// The first one lets a step end; the second one ends the process, whatever it is doing.
void on_signal(int signal) {
  if (stop_signal != 0) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  stop_signal = signal;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

BatchLayout layout_of(const Program& program) { return {program.rows, program.length}; }

std::span<std::byte> bytes_of(const Executor& executor, TensorId tensor) {
  if (tensor == no_tensor) return {};
  const auto size = static_cast<size_t>(executor.program().tensors[static_cast<size_t>(tensor)].bytes);
  return {executor.address(tensor), size};
}

/// Puts a micro-batch of a window where the program reads it.
Status feed(Executor& executor, const WindowBuffer& window, int64_t micro_batch) {
  const Program& program = executor.program();
  std::array<const void*, kBatchTensorCount> sources = {};
  size_t n = 0;
  for (const auto& [name, tensor] : program.inputs) {
    for (size_t t = 0; t < kBatchTensorCount; ++t)
      if (name == kBatchTensors[t]) sources[n] = window.tensor(micro_batch, t).data();
    if (!sources[n]) return plugin_error("the model reads an input '" + name + "' that no data source makes");
    ++n;
  }
  return executor.copy_inputs({sources.data(), n});
}

Result<double> evaluate(Executor& executor, const Source& source, WindowBuffer buffer) {
  int64_t tokens = 0;
  TRY_STATUS(executor.begin_step({1, 1, 1, 1}));
  for (int64_t b = 0; b < source.validation_batches(); ++b) {
    TRY_STATUS(source.fill_validation(b, buffer));
    TRY_STATUS(executor.begin_micro(0));
    TRY_STATUS(feed(executor, buffer, 0));
    TRY_STATUS(executor.run(SegmentKind::Eval));
    TRY_STATUS(executor.synchronize());
    tokens += buffer.valid_tokens;
  }
  const double loss = TRY(executor.scalar(GALLEY_SCALAR_LOSS));
  return tokens ? loss / static_cast<double>(tokens) : 0.0;
}

StateInfo state_info(const Study& study, const Source& source) {
  StateInfo info;
  info.device = study.target.device;
  info.isa = study.target.isa;
  info.data = source.fingerprint();
  std::set<const Plugin*> plugins;
  for (const auto& s : study.loaded) plugins.insert(&s->plugin());
  for (const Plugin* p : plugins) info.plugins.push_back({p->manifest.id, p->manifest.version, p->manifest.state_version});
  std::sort(info.plugins.begin(), info.plugins.end(), [](const PluginStamp& a, const PluginStamp& b) { return a.id < b.id; });
  std::string text = study.recipe.text;
  for (const auto& [name, value] : study.recipe.sets) text += "\n" + name + "=" + value;
  char hash[20];
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(galley_name_hash(text.c_str())));
  info.recipe = hash;
  return info;
}

/// The learning rate that metrics show: of the first strategy that has one.
const ScalarSlot* lr_slot(const Program& program) {
  for (const ScalarSlot& s : program.slots)
    if (s.option.ends_with(".lr")) return &s;
  return nullptr;
}

/// What a recipe's `save` asks for.
struct SavePlan {
  const Recipe& recipe;
  bool scheduled(int64_t step) const {
    return (recipe.save_every > 0 && step % recipe.save_every == 0) || (step == recipe.steps && recipe.save_final);
  }
};

int64_t step_of(const std::filesystem::path& state) { return std::atoll(state.filename().string().c_str() + 5); }

/// States that a signal asked for, out of turn: they go when the next one in turn is there, so that an interrupted run leaves what a whole one does.
Status drop_unscheduled(const std::filesystem::path& states, const SavePlan& plan, int64_t newest) {
  std::error_code error;
  std::vector<std::filesystem::path> doomed;
  for (const auto& entry : std::filesystem::directory_iterator(states, error))
    if (entry.path().filename().string().starts_with("step-") && !plan.scheduled(step_of(entry.path())) && step_of(entry.path()) != newest)
      doomed.push_back(entry.path());
  for (const auto& path : doomed) {
    std::filesystem::remove(path / "state.toml", error);
    TRY_STATUS(sync_directory(path));
    std::filesystem::remove_all(path, error);
  }
  if (error) return run_error("cannot remove old states in " + states.string() + ": " + error.message());
  return clean_states(states, plan.recipe.save_keep);
}

bool exported(const Program& program, const std::filesystem::path& directory) {
  std::error_code error;
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (i.action == Action::Write && !std::filesystem::exists(directory / i.file, error)) return false;
  for (const Document& d : program.documents)
    if (!std::filesystem::exists(directory / d.file, error)) return false;
  return true;
}

Error not_finite(const Program& program, Executor& executor, int64_t step, double loss, double norm) {
  std::string which;
  for (const Trained& t : program.trained) {
    double sum = 0;
    if (!executor.machine().get(t.sum_squares.tensor, t.sum_squares.offset, std::as_writable_bytes(std::span(&sum, 1)))) break;
    if (std::isfinite(sum)) continue;
    which = "; first gradient that is not finite: " + t.name;
    break;
  }
  return run_error("step " + std::to_string(step) + ": loss " + std::to_string(loss) + ", gradient norm " + std::to_string(norm) + which,
                   "a smaller learning rate or clipping may help; the states saved before are good");
}

}  // namespace

StopSignals::StopSignals() {
  stop_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, &interrupt_);
  sigaction(SIGTERM, &action, &terminate_);
}

StopSignals::~StopSignals() {
  sigaction(SIGINT, &interrupt_, nullptr);
  sigaction(SIGTERM, &terminate_, nullptr);
}

bool StopSignals::asked() { return stop_signal != 0; }

Result<RunRecord> record_of(const Study& study, const StudyOptions& options, const Source& source) {
  RunRecord out;
  out.version = GALLEY_VERSION;
  out.recipe = study.recipe.path;
  out.recipe_text = study.recipe.text;
  out.sets = study.recipe.sets;
  out.confined = study.recipe.confine == Confine::Yes;
  out.working_directory = std::filesystem::current_path();
  for (const auto& p : options.plugin_path) out.plugin_path.push_back(std::filesystem::absolute(p).string());
  out.device = options.device;
  out.seed = study.recipe.seed;
  out.steps = study.recipe.steps;
  out.target = target_toml(study.target);
  for (const auto& p : study.plugins->all()) {
    if (!p->library) continue;
    std::string hash = TRY(hash_files(p->open_files()));
    out.plugins.push_back({p->manifest.id, p->manifest.version, p->manifest.state_version, std::move(hash)});
  }
  for (const Program::Chosen& k : study.program.kernels) out.kernels.push_back(k.op + ": " + k.kernel + " (" + k.plugin + ")");
  for (const auto& s : study.loaded) out.strategies.push_back({s->name(), to_json(Value(s->options().values()))});
  for (const DataReport& report : source.reports()) out.data.push_back({report.kind, facts_of(report)});
  return out;
}

Result<std::unique_ptr<Source>> open_source(const Study& study) {
  BytesProgress progress("preparing the data");
  PrepareOptions options;
  options.threads = usable_threads();
  options.progress = [&](uint64_t done, uint64_t total) -> Status {
    progress.update(done, total);
    if (StopSignals::asked())
      return Error{Exit::Interrupted, "interrupted while the data was being prepared", "nothing is left of it; begin again"};
    return ok();
  };
  const Windows windows = {study.program.micro_batches, study.program.window_tokens};
  return open_data(study.data, study.recipe.data, study.recipe, study.program.vocabulary, windows, options);
}

Result<Session> open_session(const Study& study, std::unique_ptr<Source> source, Poison poison) {
  TRY_STATUS(check_files(study.program, study.graph->ignored_files));
  Session out;
  out.source = std::move(source);
  ExecutorOptions options;
  options.seed = study.recipe.seed;
  options.poison = poison;
  out.executor = TRY(Executor::create(study.program, study.plan, study.target, *study.device.table, options));
  if (out.source) TRY_STATUS(out.source->load(bytes_of(*out.executor, study.program.corpus)));
  TRY_STATUS(out.executor->load());
  TRY_STATUS(out.executor->synchronize());
  return out;
}

Result<double> validation_loss(const Study& study, Session& session) {
  if (!session.source || session.source->validation_batches() == 0)
    return recipe_error(study.recipe.data.place.text() + ": there is no validation data",
                        "hold some out: data.text { …, validation = 0.05 }");
  const WindowBuffer buffer = {layout_of(study.program), bytes_of(*session.executor, study.program.window), -1, 0, 0};
  return evaluate(*session.executor, *session.source, buffer);
}

Status train(const Study& study, std::unique_ptr<Source> source, const std::filesystem::path& directory, Poison poison) {
  const Recipe& recipe = study.recipe;
  const Program& program = study.program;
  const std::filesystem::path states = directory / "state";
  const SavePlan saves = {recipe};

  const auto latest = TRY(find_latest(states));
  const int64_t done = latest ? step_of(*latest) : 0;
  // A process that was killed between a save and the removal of older states left both.
  if (latest && saves.scheduled(done)) TRY_STATUS(drop_unscheduled(states, saves, done));
  else TRY_STATUS(clean_states(states, recipe.save_keep + 1));
  if (done >= recipe.steps && (!recipe.save_final || exported(program, directory))) {
    std::printf("nothing left to do: all %lld steps are done\n", static_cast<long long>(recipe.steps));
    return ok();
  }

  if (!source) source = TRY(open_source(study));
  Session session = TRY(open_session(study, std::move(source), poison));
  Executor& executor = *session.executor;
  StateInfo info = state_info(study, *session.source);
  if (latest) {
    const StateInfo saved = TRY(read_state(*latest));
    TRY_STATUS(check_state(saved, info, *latest));
    TRY_STATUS(load_state(*latest, program, executor.machine()));
    info.attempted = saved.attempted;
    info.applied = saved.applied;
    info.next_window = saved.next_window;
  }

  std::vector<int64_t> allocated;
  for (size_t c = 0; c < study.plan.classes.size(); ++c) allocated.push_back(executor.allocated(c));
  for (size_t c = 0; c < allocated.size(); ++c)
    if (allocated[c] != study.plan.classes[c].planned)
      return run_error("memory '" + study.target.memories[c].name + "': planned " + std::to_string(study.plan.classes[c].planned) +
                       " bytes, allocated " + std::to_string(allocated[c]));
  const bool saving = recipe.save_every > 0 || recipe.save_final;
  TRY_STATUS(write_atomic(directory / "memory.json",
                          plan_json(program, study.plan, study.target, disk_use(program, saving, recipe.save_keep), allocated)));

  MetricsFile metrics = TRY(MetricsFile::open(directory / "metrics.jsonl", info.attempted));
  EventsFile events = TRY(EventsFile::create(directory));
  Progress progress(recipe.steps, program.flops_per_token * static_cast<double>(program.rows * program.length), study.target.peak_flops());
  Proof proof(executor);
  TRY_STATUS(proof.after_load());
  const ScalarSlot* lr = lr_slot(program);

  if (StopSignals::asked())
    return Error{Exit::Interrupted, "interrupted before step " + std::to_string(info.attempted + 1),
                 "go on with: galley resume " + directory.string()};
  double last = 0, aside = 0;  // when the step before ended, and the seconds of validation and saving since
  const auto validate = [&](int64_t step, std::span<std::byte> memory) -> Status {
    const double begin = now();
    const double validation = TRY(evaluate(executor, *session.source, {layout_of(program), memory, -1, 0, 0}));
    TRY_STATUS(metrics.validation(step, validation));
    TRY_STATUS(events.scalar("validation/loss", step, static_cast<float>(validation)));
    progress.validation(step, validation);
    aside += now() - begin;
    return ok();
  };
  const bool validates = recipe.validate_every > 0 && session.source->validation_batches() > 0;
  if (validates && recipe.validate_start && info.attempted == 0) TRY_STATUS(validate(0, bytes_of(executor, program.window)));
  auto loader = TRY(Loader::start(*session.source, layout_of(program), program.micro_batches, info.next_window, recipe.steps,
                                  bytes_of(executor, program.window)));
  last = now();
  aside = 0;
  for (int64_t step = info.attempted + 1; step <= recipe.steps; ++step) {
    const WindowBuffer* window = TRY(loader->next());
    const StepBegin begin = {step, info.applied + 1, window->valid_tokens, 1.0};
    TRY_STATUS(proof.before_step(begin));
    TRY_STATUS(executor.begin_step(begin));
    for (int64_t m = 0; m < window->micro_batches; ++m) {
      TRY_STATUS(executor.begin_micro(m));
      TRY_STATUS(feed(executor, *window, m));
      TRY_STATUS(executor.run_micro(m));
    }
    const double rate = lr ? lr->schedule.at(info.applied + 1) : 0;
    TRY_STATUS(executor.run_update());
    TRY_STATUS(executor.synchronize());
    const double loss_sum = TRY(executor.scalar(GALLEY_SCALAR_LOSS)), norm = TRY(executor.scalar(GALLEY_SCALAR_GRADIENT_NORM));
    const int64_t tokens = window->valid_tokens;
    const double loss = tokens ? loss_sum / static_cast<double>(tokens) : 0;
    if (!std::isfinite(loss) || !std::isfinite(norm)) return not_finite(program, executor, step, loss, norm);
    TRY_STATUS(proof.after_step(begin));
    info.attempted = step;
    info.next_window = step;
    ++info.applied;

    const double t = now();
    const StepMetrics m = {step, loss, norm, rate, tokens, t - last};
    last = t;
    TRY_STATUS(metrics.step(m));
    TRY_STATUS(events.scalar("train/loss", step, static_cast<float>(loss)));
    TRY_STATUS(events.scalar("train/grad_norm", step, static_cast<float>(norm)));
    TRY_STATUS(events.scalar("train/lr", step, static_cast<float>(rate)));
    progress.step(m, window->micro_batches, aside);
    aside = 0;

    // The window at hand has been used up: its buffer serves for validation.
    if (validates && step % recipe.validate_every == 0) TRY_STATUS(validate(step, window->memory));
    const bool stopping = StopSignals::asked() && step < recipe.steps;
    if (saves.scheduled(step) || stopping) {
      const double begin_save = now();
      if (step == recipe.steps) TRY_STATUS(proof.finish());
      TRY_STATUS(metrics.sync());
      TRY_STATUS(save_state(states, recipe.save_keep + 1, info, program, executor.machine()));
      if (saves.scheduled(step)) TRY_STATUS(drop_unscheduled(states, saves, step));
      aside += now() - begin_save;
    }
    if (stopping) {
      progress.finish();
      return Error{Exit::Interrupted, "interrupted after step " + std::to_string(step) + ", which is saved",
                   "go on with: galley resume " + directory.string()};
    }
  }
  progress.finish();
  for (const std::string& name : proof.unmoved())
    progress.note("note: '" + name + "' never moved: its updates are smaller than its rounding");
  TRY_STATUS(metrics.sync());
  if (recipe.save_final) TRY_STATUS(executor.export_model(directory));
  return ok();
}

Status write_gradients(const Study& study, const std::filesystem::path& file) {
  const Program& program = study.program;
  if (program.logits != no_tensor && program.micro_batches > 1)
    return recipe_error("--logits are those of one micro-batch, and this recipe's window has " + std::to_string(program.micro_batches),
                        "leave --logits out, or make the window one micro-batch");
  std::unique_ptr<Source> source = TRY(open_source(study));
  Session session = TRY(open_session(study, std::move(source), Poison::No));
  Executor& executor = *session.executor;
  WindowBuffer window = {layout_of(program), bytes_of(executor, program.window), -1, 0, 0};
  TRY_STATUS(session.source->fill(0, window));
  TRY_STATUS(executor.begin_step({1, 1, window.valid_tokens, 1.0}));
  for (int64_t m = 0; m < window.micro_batches; ++m) {
    TRY_STATUS(executor.begin_micro(m));
    TRY_STATUS(feed(executor, window, m));
    TRY_STATUS(executor.run_micro(m));
  }
  TRY_STATUS(executor.synchronize());
  const double sum = TRY(executor.scalar(GALLEY_SCALAR_LOSS));
  const double loss = window.valid_tokens ? sum / static_cast<double>(window.valid_tokens) : 0;

  std::map<std::string, TensorId> tensors;
  for (const Trained& t : program.trained) tensors["grad." + t.name] = t.gradient;
  if (program.logits != no_tensor) tensors["logits"] = program.logits;
  std::vector<safetensors::Item> items = {{"loss", safetensors::Dtype::F64, {1}}};
  for (const auto& [name, id] : tensors) {
    Shape shape = program.tensors[static_cast<size_t>(id)].shape;
    if (name == "logits") shape = {program.rows, program.length, program.vocabulary};
    items.push_back({name, safetensors::Dtype::F32, shape});
  }
  const std::filesystem::path aside = file.string() + ".tmp";
  std::string not_finite = std::isfinite(loss) ? "" : "the loss is " + std::to_string(loss);
  const auto write = [&]() -> Status {
    auto writer = TRY(safetensors::Writer::create(aside, std::move(items)));
    const std::vector<safetensors::Item> order(writer.items().begin(), writer.items().end());
    for (const safetensors::Item& item : order) {
      if (item.name == "loss") {
        TRY_STATUS(writer.write(item.name, std::as_bytes(std::span(&loss, 1))));
        continue;
      }
      TRY_STATUS(executor.machine().show(tensors.at(item.name), [&](std::span<const std::byte> piece) {
        const auto count = static_cast<int64_t>(piece.size() / sizeof(float));
        if (not_finite.empty() && first_not_finite(piece.data(), GALLEY_F32, count) >= 0) not_finite = item.name + " is not finite";
        return writer.write(item.name, piece);
      }));
    }
    TRY_STATUS(writer.finish());
    return rename_synced(aside, file);
  };
  Status status = write();
  std::error_code error;
  if (!status) std::filesystem::remove(aside, error);
  // The file shows where it went wrong, and a program that goes by the exit code does not take it for right.
  if (status && !not_finite.empty()) return run_error(file.string() + " is written, but " + not_finite);
  return status;
}

}  // namespace galley
