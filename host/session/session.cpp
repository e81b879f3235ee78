#include "host/session/session.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "host/base/ordered.hpp"
#include "host/exec/convert.hpp"
#include "host/exec/state_text.hpp"
#include "host/exec/weight_checksums.hpp"
#include "host/plugins/host_table.hpp"

namespace galley {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

StateInfo state_info(const Study& study, const Source* source) {
  StateInfo info;
  info.device = study.target.device;
  info.isa = study.target.isa;
  info.products = study.target.products();
  info.head_rows = study.program.head_rows;
  info.lanes = study.program.lanes;
  info.data = source ? source->fingerprint() : 0;
  std::set<const Plugin*> plugins;
  for (const auto& s : study.loaded) plugins.insert(&s->plugin());
  for (const Plugin* p : plugins) info.plugins.push_back({p->manifest.id, p->manifest.version, p->manifest.state_version});
  std::sort(info.plugins.begin(), info.plugins.end(), [](const PluginStamp& a, const PluginStamp& b) { return a.id < b.id; });
  char hash[20];
  const std::string text = study.recipe.with_arguments();
  std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(galley_name_hash(text.c_str())));
  info.recipe = hash;
  return info;
}

/// A NaN has no sign that means anything; it would be printed.
double without_sign(double number) { return std::isnan(number) ? std::numeric_limits<double>::quiet_NaN() : number; }

std::string number_text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", number);
  return text;
}

}  // namespace

BatchLayout Session::layout() const {
  BatchLayout out = study_.data.layout;
  out.rows = study_.program.rows;
  return out;
}

Result<std::unique_ptr<Source>> open_source(const Study& study, PrepareProgress progress) {
  PrepareOptions options;
  options.threads = usable_threads();
  options.progress = std::move(progress);
  const Windows windows = {study.program.micro_batches, study.program.window_tokens, study.program.lanes};
  return study.kinds.open(study.data, study.recipe.data, study.recipe, study.program.vocabulary, windows, options, study.sources);
}

Result<std::unique_ptr<Session>> Session::open(const Study& study, std::unique_ptr<Source> source, const SessionOptions& options) {
  TRY_STATUS(check_files(study.program, study.draft->ignored_files));
  // A device that works by itself has threads of its own; the host's are then as many as there are processors.
  const auto threads = static_cast<int>(study.target.threads);
  set_compute_threads(study.target.synchronous ? threads : std::min(threads, static_cast<int>(usable_threads())));
  std::unique_ptr<Session> out(new Session(study));
  if (!options.party) out->alone_ = TRY(Party::open({}));
  out->party_ = options.party ? options.party : out->alone_.get();
  out->source_ = std::move(source);
  out->info_ = state_info(study, out->source_.get());
  ExecutorOptions executor;
  if (options.watching) executor.watching = options.watching(*study.plugins);
  executor.timed = options.timed;
  executor.choices = options.choices;
  executor.loading = options.loading;
  executor.shift = options.shift;
  executor.ranks = out->party_->handle();
  executor.index = static_cast<uint32_t>(out->party_->place().local_rank);
  executor.together = {out->party_->leads(), [party = out->party_](Status mine) { return party->first_error(std::move(mine)); },
                       [party = out->party_](std::span<uint64_t> numbers) { return party->add_up(numbers); }};
  executor.exchanging = options.exchanging;
  out->executor_ = TRY(Executor::create(study.program, study.plan, study.target, *study.device.table, executor));
  if (out->source_) TRY_STATUS(out->source_->load(out->bytes_of(study.program.corpus)));
  TRY_STATUS(out->executor_->load());
  TRY_STATUS(out->executor_->synchronize());
  if (study.program.scores != no_tensor) {
    const ProgramTensor& made = study.program.tensors[static_cast<size_t>(study.program.scores)];
    out->scores_.emplace(static_cast<size_t>(study.recipe.learning.classes), study.recipe.learning.several);
    out->head_made_.resize(static_cast<size_t>(made.bytes));
    out->logits_.resize(static_cast<size_t>(made.bytes / galley_dtype_bytes(made.dtype)));
  }
  return out;
}

std::span<std::byte> Session::bytes_of(TensorId tensor) const {
  if (tensor == no_tensor) return {};
  const auto size = static_cast<size_t>(study_.program.tensors[static_cast<size_t>(tensor)].bytes);
  return {executor_->address(tensor), size};
}

Status Session::feed(const WindowBuffer& window, int64_t micro_batch) {
  const std::byte* const begin = bytes_of(study_.program.window).data();
  std::array<int64_t, kFills + kMostOwnInputs> offsets = {};
  size_t n = 0;
  for (const Program::Input& input : study_.program.inputs)
    offsets[n++] = std::as_bytes(window.tensor(micro_batch, input.fill)).data() - begin;
  return executor_->copy_inputs({offsets.data(), n});
}

Status Session::start() {
  proof_.emplace(*executor_);
  name_rates();
  TRY_STATUS(proof_->after_load());
  // All of them, trained ones too: a run that continues from other weights than it began with is another run.
  info_.weights = proof_->frozen();
  const std::vector<Trained>& trained = study_.program.trained;
  std::vector<uint64_t> checksums(trained.size());
  TRY_STATUS(WeightChecksums(*executor_, SegmentKind::Trained).take(checksums));
  for (size_t i = 0; i < checksums.size(); ++i) info_.weights[trained[i].name] = checksums[i];
  return ok();
}

Status Session::resume(const std::filesystem::path& state) {
  TRY_STATUS(start());
  const StateInfo saved = TRY(read_state(state));
  TRY_STATUS(check_state(saved, info_, state));
  info_.attempted = saved.attempted;
  info_.applied = saved.applied;
  info_.next_window = saved.next_window;
  info_.validation = saved.validation;
  info_.ended = saved.ended;
  proof_->restore(saved.without_gradient);
  TRY_STATUS(load_state(state, study_.program, executor_->machine(), StateTensors::All, executor_->together()));
  saved_ = true;
  return executor_->run(SegmentKind::Refresh);
}

Status Session::check_base(const std::filesystem::path& state) {
  TRY_STATUS(start());
  return check_weights(TRY(read_state(state)), info_, state);
}

/// Where a weight was read: its file and its name there.
std::string Session::place_of(const std::string& weight) const {
  for (const Instruction& code : study_.program.segment(SegmentKind::Load).code) {
    const Read* read = code.read();
    if (!read || !weight.starts_with(code.name.substr(std::strlen("read ")))) continue;
    const auto reader = tensor_files::Reader::open(read->file);
    const tensor_files::Entry* entry = reader ? reader->find(read->entry) : nullptr;
    return entry ? reader->files()[entry->file].path().string() + ": tensor '" + entry->name + "'"
                 : read->file + ": tensor '" + weight + "'";
  }
  return "weight '" + weight + "'";
}

Status Session::check_frozen(const StateInfo& saved, const std::filesystem::path& state) {
  const std::vector<TensorId>& frozen = study_.program.frozen;
  std::vector<uint64_t> checksums(frozen.size());
  TRY_STATUS(WeightChecksums(*executor_, SegmentKind::Frozen).take(checksums));
  std::vector<std::string> changed;
  for (size_t i = 0; i < frozen.size(); ++i) {
    const std::string& name = study_.program.tensors[static_cast<size_t>(frozen[i])].name;
    const auto then = saved.weights.find(name);
    if (then != saved.weights.end() && then->second != checksums[i]) changed.push_back(name);
  }
  if (changed.empty()) return ok();
  return recipe_error(place_of(changed[0]) + " is not what it was when " + state.parent_path().parent_path().string() +
                          " began: the base model has changed, in " + std::to_string(changed.size()) + " of " +
                          std::to_string(frozen.size()) + " weights",
                      "what the run has trained belongs to the weights as they were: put the model's files back");
}

Status Session::load_weights(const std::filesystem::path& state) {
  TRY_STATUS(check_frozen(TRY(read_state(state)), state));
  TRY_STATUS(load_state(state, study_.program, executor_->machine(), StateTensors::Some, executor_->together()));
  return executor_->run(SegmentKind::Refresh);
}

Status Session::enqueue() {
  const Program& program = study_.program;
  if (!loader_) {
    const int64_t held = study_.target.steps_under_way();
    loader_ = TRY(Loader::start(*source_, layout(), round_up(program.micro_batches, program.lanes), info_.next_window, study_.recipe.steps,
                                bytes_of(program.window), held));
    under_way_.reserve(static_cast<size_t>(held));
    last_ = now();
    aside_ = 0;
  }
  window_ = TRY(loader_->next());
  const ProofStep step = {steps_enqueued() + 1, info_.applied + 1, window_->valid_tokens};
  TRY_STATUS(proof_->before_step(step));
  TRY_STATUS(executor_->begin_step({step.attempted, step.window_tokens, info_.applied + 1}));
  TRY_STATUS(program.each_micro_batch(window_->micro_batches, [&](int64_t m, const MicroPlace& place) -> Status {
    TRY_STATUS(feed(*window_, m));
    return executor_->run_micro(place);
  }));
  // This update reads back where the one before did.
  TRY_STATUS(take());
  TRY_STATUS(executor_->run_update());
  under_way_.push_back({step, window_->micro_batches, window_->rows_done});
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

  StepEvent out;
  out.step = step.attempted;
  out.tokens = step.window_tokens;
  out.micro_batches = done.micro_batches;
  out.positions = done.micro_batches * study_.program.rows * (study_.program.length + study_.program.target_length);
  const uint64_t epoch = source_->epoch();
  out.epoch = epoch > 0 ? static_cast<double>(done.rows_done) / static_cast<double>(epoch) : 0;
  read_reported(step.applied);
  out.lr = rates_.empty() ? 0 : rates_.front().slot->schedule.at(step.applied);
  out.grad_norm = without_sign(executor_->scalar(GALLEY_SCALAR_GRADIENT_NORM));
  out.loss = out.tokens ? without_sign(executor_->scalar(GALLEY_SCALAR_LOSS) / static_cast<double>(out.tokens)) : 0;
  out.applied = executor_->scalar(GALLEY_SCALAR_APPLY) != 0;
  TRY_STATUS(check_finite(out));
  TRY_STATUS(check_stops(out));
  out.reported = reported_;
  TRY_STATUS(proof_->after_step(step));
  info_.attempted = out.step;
  info_.next_window = out.step;
  info_.applied += out.applied ? 1 : 0;
  if (out.applied && out.tokens) losses_.add(out.loss);

  const double t = now();
  out.seconds = std::max(t - last_ - aside_, 0.0);
  out.aside = aside_;
  last_ = t;
  aside_ = 0;
  return out;
}

/// One for each optimizer of the recipe. Beside an option "lr", its other rates have names of their own and come later. What `scale_rate`
/// makes of a rate is none of its own.
void Session::name_rates() {
  const auto owner = [](const ScalarSlot& slot) { return slot.option.substr(0, slot.option.rfind('.')); };
  std::set<std::string> with_lr;
  for (const ScalarSlot& slot : study_.program.slots)
    if (slot.rate && slot.option.ends_with(".lr")) with_lr.insert(owner(slot));
  const auto is_main = [&](const ScalarSlot& slot) { return slot.option.ends_with(".lr") || !with_lr.contains(owner(slot)); };
  std::map<std::string, int> named;
  for (const ScalarSlot& slot : study_.program.slots) {
    if (!slot.rate || slot.factor != 1) continue;
    std::string name = "lr." + (is_main(slot) ? owner(slot) : slot.option);
    if (const int times = ++named[name]; times > 1) name += "." + std::to_string(times);
    rates_.push_back({&slot, std::move(name)});
  }
  std::stable_partition(rates_.begin(), rates_.end(), [&](const Rate& rate) { return is_main(*rate.slot); });
}

void Session::read_reported(int64_t applied) {
  reported_.clear();
  for (const Metric& metric : study_.program.metrics) reported_.push_back({metric.name.c_str(), executor_->number(metric.value)});
  if (rates_.size() < 2) return;  // `lr` says it
  for (const Rate& rate : rates_) reported_.push_back({rate.name.c_str(), rate.slot->schedule.at(applied)});
}

Status Session::finish() {
  if (info_.attempted > 0 && info_.applied == 0) {
    const double scale = executor_->scalar(GALLEY_SCALAR_LOSS_SCALE);
    const std::string scaled = scale != 1 ? ", at a loss scale of " + number_text(scale) + " in the last one" : "";
    return run_error("none of the " + std::to_string(info_.attempted) +
                         " steps was applied: all were skipped, because their gradients were not finite" + scaled,
                     scale != 1 ? "nothing has trained: leave the loss scale at its default, which is dynamic, or compute in bf16, which "
                                  "needs none"
                                : "nothing has trained: see whether the loss is finite");
  }
  return proof_->finish();
}

void Session::Losses::add(double loss) {
  if (count < most) first[static_cast<size_t>(count)] = loss;
  last[static_cast<size_t>(count++ % most)] = loss;
}

std::pair<double, double> Session::Losses::means(int64_t n) const {
  double begin = 0, end = 0;
  for (int64_t i = 0; i < n; ++i) {
    begin += first[static_cast<size_t>(i)];
    end += last[static_cast<size_t>((count - 1 - i) % most)];
  }
  return {begin / static_cast<double>(n), end / static_cast<double>(n)};
}

std::vector<std::string> Session::warnings() const {
  constexpr int64_t silent_steps = 3;  // in a row: a single one can have a reason
  const std::string hint = "; a smaller learning rate or clipping may help";
  if (const int64_t silent = proof_->steps_without_gradient(); silent >= silent_steps)
    return {"the last " + std::to_string(silent) + " steps had a gradient of zero, at a loss of " + number_text(losses_.means(1).second) +
            ": the model has diverged" + hint};
  // Means, since one window's loss says little; in a run of a few steps only a loss that is far off says anything.
  const int64_t n = std::clamp<int64_t>(losses_.count / 4, 1, Losses::most);
  const auto [first, last] = losses_.means(n);
  if (losses_.count < 2 || !(last > (n > 1 ? 1.1 * first + 0.5 : 2 * first + 5))) return {};
  return {"the loss has risen from " + number_text(first) + " to " + number_text(last) + " (means of the first and the last " +
          std::to_string(n) + " steps): the model has diverged" + hint};
}

/// A norm that is not finite ends the run only if nobody has skipped the step for it.
Status Session::check_finite(const StepEvent& event) const {
  if (!event.applied) return ok();
  if (!std::isfinite(executor_->scalar(GALLEY_SCALAR_GRADIENT_FACTOR)))  // 0 times that is not 0
    return run_error("step " + std::to_string(event.step) + ": the loss scale of " +
                         number_text(executor_->scalar(GALLEY_SCALAR_LOSS_SCALE)) +
                         " is too small: gradients cannot be divided by it in F32",
                     "leave it at its default, which is dynamic, or take one of at least 1");
  if (std::isfinite(event.loss) && std::isfinite(event.grad_norm)) return ok();
  std::string which;
  for (const Trained& t : study_.program.trained) {
    if (std::isfinite(executor_->number(t.sum_squares))) continue;
    which = "; first gradient that is not finite: " + t.name;
    break;
  }
  return run_error("step " + std::to_string(event.step) + ": loss " + number_text(event.loss) + ", gradient norm " +
                       number_text(event.grad_norm) + which,
                   std::string("a smaller learning rate or clipping may help") + (saved_ ? "; the states saved before are good" : ""));
}

/// A strategy may give up, or have nothing left to do.
Status Session::check_stops(const StepEvent& event) {
  for (const StopFlag& stop : study_.program.stops) {
    if (executor_->number(stop.value) == 0) continue;
    if (!stop.done) return run_error("step " + std::to_string(event.step) + ": " + stop.strategy + ": " + stop.cause, stop.hint);
    if (info_.ended.empty()) info_.ended = stop.strategy + ": " + stop.cause;
  }
  return ok();
}

WindowBuffer Session::spare_window() const {
  // Once the loader runs, the window at hand has been used up, and the other one is being filled.
  return {layout(), window_ ? window_->memory : bytes_of(study_.program.window), -1, 0, 0, 0};
}

Result<Session::Validation> Session::evaluate(const std::function<Status(int64_t, int64_t)>& after) {
  const double begin = now();
  if (!evaluates())
    return recipe_error(study_.recipe.data.place.text() + ": there is no validation data",
                        "hold some out: data.text { …, validation = 0.05 }");
  WindowBuffer buffer = spare_window();
  const int64_t batches = source_->validation_batches();
  // Loss, hits and tokens of each batch: they are added in the order of batches, whoever has which.
  std::vector<double> sums(static_cast<size_t>(3 * batches));
  TRY_STATUS(executor_->synchronize());
  if (scores_) scores_->clear();
  const Operand& predicted = study_.program.hits;
  // Where the segment exchanges parts of weights, all processes run it as often, those without a batch on any.
  const bool in_step = study_.program.segment(SegmentKind::Eval).exchanges();
  const int64_t rounds = in_step ? round_up(batches, study_.program.groups()) : batches;
  for (int64_t b = study_.program.group(); b < rounds; b += study_.program.groups()) {
    TRY_STATUS(source_->fill_validation(std::min(b, batches - 1), buffer));
    executor_->tell({info_.attempted + 1, buffer.valid_tokens});
    TRY_STATUS(feed(buffer, 0));
    TRY_STATUS(executor_->run(SegmentKind::Eval));
    TRY_STATUS(executor_->read_back());
    if (b >= batches || study_.program.place() != 0) continue;  // a group's first tells of it
    double* const of_batch = sums.data() + 3 * b;
    of_batch[0] = executor_->scalar(GALLEY_SCALAR_LOSS);
    of_batch[1] = predicted.present() ? executor_->number(predicted) : 0;
    of_batch[2] = static_cast<double>(buffer.valid_tokens);
    if (scores_) TRY_STATUS(take_scores(buffer));
    if (after) TRY_STATUS(after(b + 1, batches));
  }
  sums = TRY(party_->totals(sums));
  if (scores_) scores_->take(TRY(party_->totals(scores_->numbers())));
  double loss = 0, hits = 0, tokens = 0;
  for (size_t i = 0; i < sums.size(); i += 3) {
    loss += sums[i];
    hits += sums[i + 1];
    tokens += sums[i + 2];
  }
  aside_ += now() - begin;
  const double counted = std::max(tokens, 1.0);
  Validation out = {loss / counted, {}};
  if (study_.predicts_tokens()) out.reported.push_back({"perplexity", std::exp(out.loss)});
  if (study_.predicts_tokens() && predicted.present()) out.reported.push_back({"token_accuracy", hits / counted});
  if (scores_) out.reported = {{"accuracy", scores_->accuracy()}, {"f1", scores_->f1()}};
  return out;
}

Status Session::agree() {
  if (party_->alone()) return ok();
  std::vector<Subject> subjects = {
      {"Galley", GALLEY_VERSION}, {"the recipe", study_.recipe.with_arguments()}, {"the run", state_text(info_, {})}};
  const Program& program = study_.program;
  // Not which kernels: nodes are joined as each process has room, and each computes its own updates. That changes no number.
  std::set<std::string> of_kernels;
  for (const Instruction& i : program.segment(SegmentKind::Micro).code)
    if (i.launch()) of_kernels.insert(plugin_of(i.launch()->kernel));
  std::string kernels, exchanges;
  for (const auto& plugin : study_.plugins->all())
    if (of_kernels.contains(plugin->manifest.id)) kernels += plugin->manifest.id + " " + plugin->manifest.version + "\n";
  for (const Segment& segment : program.segments)
    for (const Instruction& i : segment.code)
      if (i.exchanges())
        exchanges += std::string(segment_names[static_cast<size_t>(segment.kind)]) + " " + i.launch()->op()->name + " " + i.name + "\n";
  subjects.push_back({"kernels' plugins", kernels});
  subjects.push_back({"exchanges", exchanges});
  return party_->agree(subjects);
}

/// Takes the logits of a batch beside its labels.
Status Session::take_scores(const WindowBuffer& rows) {
  const Program& program = study_.program;
  TRY_STATUS(executor_->machine().get(program.scores, 0, head_made_));
  convert(logits_.data(), GALLEY_F32, head_made_.data(), program.tensors[static_cast<size_t>(program.scores)].dtype,
          static_cast<int64_t>(logits_.size()));
  const Fill labels = study_.recipe.learning.labels;
  const size_t classes = scores_->classes();
  std::span<const float> logits = logits_;
  for (int64_t r = 0; r < rows.rows(); ++r) {
    const std::span<const int32_t> of_row = rows.row(r)[labels];
    if (scores_->several()) {
      if (of_row[0] != kNoLabel) scores_->add(logits.first(classes), of_row);
      logits = logits.subspan(classes);
      continue;
    }
    for (const int32_t label : of_row) {
      if (label != kNoLabel) scores_->add(logits.first(classes), label);
      logits = logits.subspan(classes);
    }
  }
  return ok();
}

Status Session::save(const std::filesystem::path& states, int64_t keep) {
  const double begin = now();
  info_.without_gradient = proof_->without_gradient();
  TRY_STATUS(save_state(states, keep, info_, study_.program, executor_->machine(), executor_->together()));
  saved_ = true;
  aside_ += now() - begin;
  return ok();
}

}  // namespace galley
