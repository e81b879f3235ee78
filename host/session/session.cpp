#include "host/session/session.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>

#include "host/base/ordered.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/weight_sums.hpp"
#include "host/plugins/host_table.hpp"

namespace galley {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

BatchLayout layout_of(const Program& program) { return {program.rows, program.length}; }

StateInfo state_info(const Study& study, const Source* source) {
  StateInfo info;
  info.device = study.target.device;
  info.isa = study.target.isa;
  info.products = study.target.products();
  info.data = source ? source->fingerprint() : 0;
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

}  // namespace

Result<std::unique_ptr<Source>> open_source(const Study& study, PrepareProgress progress) {
  PrepareOptions options;
  options.threads = usable_threads();
  options.progress = std::move(progress);
  const Windows windows = {study.program.micro_batches, study.program.window_tokens};
  return open_data(study.data, study.recipe.data, study.recipe, study.program.vocabulary, windows, options);
}

Result<std::unique_ptr<Session>> Session::open(const Study& study, std::unique_ptr<Source> source, const SessionOptions& options) {
  TRY_STATUS(check_files(study.program, study.graph->ignored_files));
  // A device that works by itself has threads of its own; the host's are then as many as there are processors.
  const auto threads = static_cast<int>(study.target.threads);
  set_compute_threads(study.target.synchronous ? threads : std::min(threads, static_cast<int>(usable_threads())));
  std::unique_ptr<Session> out(new Session(study));
  out->source_ = std::move(source);
  out->info_ = state_info(study, out->source_.get());
  ExecutorOptions executor;
  executor.poison = options.poison;
  executor.timed = options.timed;
  executor.choices = options.choices;
  executor.reference = {options.reference, [&study](const std::string& format) -> const galley_op* {
                          const auto found = study.plugins->format(format);
                          return found ? study.plugins->op(found.table->unpack_op).table : nullptr;
                        }};
  out->executor_ = TRY(Executor::create(study.program, study.plan, study.target, *study.device.table, executor));
  if (out->source_) TRY_STATUS(out->source_->load(out->bytes_of(study.program.corpus)));
  TRY_STATUS(out->executor_->load());
  TRY_STATUS(out->executor_->synchronize());
  return out;
}

std::span<std::byte> Session::bytes_of(TensorId tensor) const {
  if (tensor == no_tensor) return {};
  const auto size = static_cast<size_t>(study_.program.tensors[static_cast<size_t>(tensor)].bytes);
  return {executor_->address(tensor), size};
}

Status Session::feed(const WindowBuffer& window, int64_t micro_batch) {
  const std::byte* const begin = bytes_of(study_.program.window).data();
  std::array<int64_t, kBatchTensorCount> offsets = {};
  size_t n = 0;
  for (const auto& [name, tensor] : study_.program.inputs) {
    const auto* const at = std::find(std::begin(kBatchTensors), std::end(kBatchTensors), name);
    if (at == std::end(kBatchTensors)) return plugin_error("the model reads an input '" + name + "' that no data source makes");
    offsets[n++] = std::as_bytes(window.tensor(micro_batch, static_cast<size_t>(at - kBatchTensors))).data() - begin;
  }
  return executor_->copy_inputs({offsets.data(), n});
}

Status Session::start() {
  proof_.emplace(*executor_);
  TRY_STATUS(proof_->after_load());
  // All of them, trained ones too: a run that continues from other weights than it began with is another run.
  info_.weights = proof_->frozen();
  const std::vector<Trained>& trained = study_.program.trained;
  std::vector<uint64_t> sums(trained.size());
  TRY_STATUS(WeightSums(*executor_, SegmentKind::Trained).take(sums));
  for (size_t i = 0; i < sums.size(); ++i) info_.weights[trained[i].name] = sums[i];
  return ok();
}

Status Session::resume(const std::filesystem::path& state) {
  TRY_STATUS(start());
  const StateInfo saved = TRY(read_state(state));
  TRY_STATUS(check_state(saved, info_, state));
  info_.attempted = saved.attempted;
  info_.applied = saved.applied;
  info_.next_window = saved.next_window;
  proof_->restore(saved.without_gradient);
  TRY_STATUS(load_state(state, study_.program, executor_->machine()));
  return executor_->run(SegmentKind::Refresh);
}

Status Session::load_weights(const std::filesystem::path& state) {
  TRY_STATUS(load_state(state, study_.program, executor_->machine(), StatePart::Some));
  return executor_->run(SegmentKind::Refresh);
}

Status Session::enqueue() {
  const Program& program = study_.program;
  if (!loader_) {
    const int64_t held = study_.target.steps_under_way();
    loader_ = TRY(Loader::start(*source_, layout_of(program), program.micro_batches, info_.next_window, study_.recipe.steps,
                                bytes_of(program.window), held));
    under_way_.reserve(static_cast<size_t>(held));
    last_ = now();
    aside_ = 0;
  }
  window_ = TRY(loader_->next());
  const ProofStep step = {steps_enqueued() + 1, info_.applied + 1, window_->valid_tokens};
  TRY_STATUS(proof_->before_step(step));
  TRY_STATUS(executor_->begin_step({step.attempted, step.window_tokens}));
  for (int64_t m = 0; m < window_->micro_batches; ++m) {
    TRY_STATUS(feed(*window_, m));
    TRY_STATUS(executor_->run_micro(m));
  }
  // This update reads back where the one before did.
  TRY_STATUS(take());
  TRY_STATUS(executor_->run_update());
  under_way_.push_back({step, window_->micro_batches});
  return ok();
}

Status Session::take() {
  if (under_way_.empty() || taken_) return ok();
  taken_ = true;
  return executor_->await_update();
}

Result<StepEvent> Session::finished() {
  TRY_STATUS(take());
  taken_ = false;
  const UnderWay done = under_way_.front();
  under_way_.erase(under_way_.begin());
  const ProofStep step = {done.step.attempted, info_.applied + 1, done.step.window_tokens};
  const ScalarSlot* lr = lr_slot(study_.program);

  StepEvent out;
  out.step = step.attempted;
  out.tokens = step.window_tokens;
  out.micro_batches = done.micro_batches;
  out.lr = lr ? lr->schedule.at(step.applied) : 0;
  out.grad_norm = executor_->scalar(GALLEY_SCALAR_GRADIENT_NORM);
  out.loss = out.tokens ? executor_->scalar(GALLEY_SCALAR_LOSS) / static_cast<double>(out.tokens) : 0;
  out.applied = executor_->scalar(GALLEY_SCALAR_APPLY) != 0;
  TRY_STATUS(check_finite(out));
  TRY_STATUS(check_stops(out));
  read_reported();
  out.reported = reported_;
  TRY_STATUS(proof_->after_step(step));
  info_.attempted = out.step;
  info_.next_window = out.step;
  info_.applied += out.applied ? 1 : 0;

  const double t = now();
  out.seconds = t - last_;
  out.aside = aside_;
  last_ = t;
  aside_ = 0;
  return out;
}

void Session::read_reported() {
  const std::vector<Metric>& metrics = study_.program.metrics;
  reported_.resize(metrics.size());  // the first time
  for (size_t i = 0; i < metrics.size(); ++i) reported_[i] = {metrics[i].name, executor_->number(metrics[i].value)};
}

/// A norm that is not finite ends the run only if nobody has skipped the step for it.
Status Session::check_finite(const StepEvent& event) const {
  if (!event.applied || (std::isfinite(event.loss) && std::isfinite(event.grad_norm))) return ok();
  std::string which;
  for (const Trained& t : study_.program.trained) {
    if (std::isfinite(executor_->number(t.sum_squares))) continue;
    which = "; first gradient that is not finite: " + t.name;
    break;
  }
  return run_error("step " + std::to_string(event.step) + ": loss " + std::to_string(event.loss) + ", gradient norm " +
                       std::to_string(event.grad_norm) + which,
                   "a smaller learning rate or clipping may help; the states saved before are good");
}

/// A strategy may give up.
Status Session::check_stops(const StepEvent& event) const {
  for (const StopFlag& stop : study_.program.stops)
    if (executor_->number(stop.value) != 0)
      return run_error("step " + std::to_string(event.step) + ": " + stop.strategy + ": " + stop.cause, stop.hint);
  return ok();
}

Result<double> Session::evaluate(const std::function<bool()>& stop) {
  const double begin = now();
  if (!evaluates())
    return recipe_error(study_.recipe.data.place.text() + ": there is no validation data",
                        "hold some out: data.text { …, validation = 0.05 }");
  // Once the loader runs, the window at hand has been used up, and the other one is being filled.
  const std::span<std::byte> memory = window_ ? window_->memory : bytes_of(study_.program.window);
  WindowBuffer buffer = {layout_of(study_.program), memory, -1, 0, 0};
  int64_t tokens = 0;
  TRY_STATUS(executor_->synchronize());
  double loss = 0;
  for (int64_t b = 0; b < source_->validation_batches(); ++b) {
    if (stop && stop()) return Error{Exit::Interrupted, "interrupted in validation batch " + std::to_string(b + 1), ""};
    TRY_STATUS(source_->fill_validation(b, buffer));
    executor_->tell({info_.attempted + 1, buffer.valid_tokens});
    TRY_STATUS(feed(buffer, 0));
    TRY_STATUS(executor_->run(SegmentKind::Eval));
    TRY_STATUS(executor_->read_back());
    loss += executor_->scalar(GALLEY_SCALAR_LOSS);
    tokens += buffer.valid_tokens;
  }
  aside_ += now() - begin;
  return tokens ? loss / static_cast<double>(tokens) : 0.0;
}

Status Session::save(const std::filesystem::path& states, int64_t keep) {
  const double begin = now();
  info_.without_gradient = proof_->without_gradient();
  TRY_STATUS(save_state(states, keep, info_, study_.program, executor_->machine()));
  aside_ += now() - begin;
  return ok();
}

Result<double> Session::gradients() {
  const Program& program = study_.program;
  WindowBuffer window = {layout_of(program), bytes_of(program.window), -1, 0, 0};
  TRY_STATUS(source_->fill(0, window));
  TRY_STATUS(executor_->begin_step({1, window.valid_tokens}));
  for (int64_t m = 0; m < window.micro_batches; ++m) {
    TRY_STATUS(feed(window, m));
    TRY_STATUS(executor_->run_micro(m));
  }
  TRY_STATUS(executor_->run_update());
  TRY_STATUS(executor_->read_back());
  const double sum = executor_->scalar(GALLEY_SCALAR_LOSS);
  return window.valid_tokens ? sum / static_cast<double>(window.valid_tokens) : 0.0;
}

Status write_gradients(Session& session, const std::filesystem::path& file) {
  const Program& program = session.study().program;
  const double loss = TRY(session.gradients());
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
  const auto scale = static_cast<float>(session.executor().scalar(GALLEY_SCALAR_LOSS_SCALE));
  std::vector<float> numbers;
  std::string not_finite = std::isfinite(loss) ? "" : "the loss is " + std::to_string(loss);
  const auto write = [&]() -> Status {
    auto writer = TRY(safetensors::Writer::create(aside, std::move(items)));
    const std::vector<safetensors::Item> order(writer.items().begin(), writer.items().end());
    for (const safetensors::Item& item : order) {
      if (item.name == "loss") {
        TRY_STATUS(writer.write(item.name, std::as_bytes(std::span(&loss, 1))));
        continue;
      }
      TRY_STATUS(session.executor().machine().show(tensors.at(item.name), [&](std::span<const std::byte> piece) {
        const uint32_t dtype = program.tensors[static_cast<size_t>(tensors.at(item.name))].dtype;
        const auto count = static_cast<int64_t>(piece.size()) / galley_dtype_bytes(dtype);
        const float divisor = item.name == "logits" ? 1 : scale;
        if (dtype != GALLEY_F32 || divisor != 1) {
          numbers.resize(static_cast<size_t>(count));
          convert(numbers.data(), GALLEY_F32, piece.data(), dtype, count);
          for (float& x : numbers) x /= divisor;
          piece = std::as_bytes(std::span(numbers));
        }
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
