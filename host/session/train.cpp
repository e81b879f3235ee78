#include "host/session/train.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "host/base/confinement.hpp"
#include "host/base/listed.hpp"
#include "host/session/listeners.hpp"
#include "host/session/run_directory.hpp"
#include "host/session/run_lock.hpp"
#include "host/session/run_result.hpp"
#include "host/tokens/cache.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// Tells all observers, up to the first one that fails.
template <class Tell>
Status tell(const TrainOptions& options, const Tell& one) {
  for (Observer* observer : options.observers) TRY_STATUS(one(*observer));
  return ok();
}

/// Whether so many validations have come without a lower loss that the run ends.
bool out_of_patience(const Recipe& recipe, const ValidationRecord& said) {
  return recipe.validate.patience > 0 && said.best_step > 0 && said.without >= recipe.validate.patience;
}

/// Takes a validation's loss down. One that is not finite is lower than none. Returns whether it is the lowest.
bool note_validation(const Recipe& recipe, int64_t step, double loss, ValidationRecord* said) {
  const bool first = said->best_step == 0, lowest = std::isfinite(loss) && (first || loss < said->best);
  const bool counts = lowest && (first || loss < said->reference - recipe.validate.min_delta);
  if (lowest) {
    said->best_step = step;
    said->best = loss;
  }
  if (counts) said->reference = loss;
  said->without = counts ? 0 : said->without + 1;
  return lowest;
}

/// Which steps the recipe's `save` asks to be saved, of a run that ends with `last`.
bool scheduled(const Recipe& recipe, int64_t step, int64_t last) {
  return (recipe.save.every > 0 && step % recipe.save.every == 0) || (step == last && recipe.save.final);
}

/// States that a signal asked for, out of turn: they go when the next one in turn is there, so that an interrupted run leaves what a whole
/// one does.
Status drop_unscheduled(const fs::path& states, const Recipe& recipe, int64_t newest, int64_t last) {
  std::error_code error;
  std::vector<fs::path> doomed;
  for (const auto& entry : fs::directory_iterator(states, error)) {
    const int64_t step = step_of(entry.path());
    if (step >= 0 && !scheduled(recipe, step, last) && step != newest) doomed.push_back(entry.path());
  }
  for (const auto& path : doomed) {
    if (!fs::is_symlink(fs::symlink_status(path, error))) {  // of a link, the link only goes
      fs::remove(path / "state.toml", error);
      TRY_STATUS(sync_directory(path));
    }
    fs::remove_all(path, error);
    if (error) break;
  }
  if (error) return run_error("cannot remove old states in " + states.string() + ": " + error.message());
  return clean_states(states, recipe.save.keep);
}

bool exported(const Program& program, const fs::path& directory) {
  std::error_code error;
  for (const Instruction& i : program.segment(SegmentKind::Export).code)
    if (i.write() && !fs::exists(directory / i.write()->file, error)) return false;
  for (const Document& d : program.documents)
    if (!fs::exists(directory / d.file, error)) return false;
  return fs::exists(directory / kResultFile, error);
}

// ---- Choices of kernels: the run's own, and those of all runs on such a machine ----

fs::path of_run(const fs::path& directory) { return directory / "choices.json"; }
Result<fs::path> of_machine(const Target& target) {
  KeyHash key;
  for (const std::string& text : {std::string(GALLEY_VERSION), target.device, target.isa, std::to_string(target.threads)}) key.add(text);
  for (const LibraryVersion& library : target.libraries) key.add(library.name + " " + library.version);
  return TRY(cache_folder()) / (key.digits() + ".choices");
}

Status read_choices(const Study& study, const fs::path& directory, Choices& choices) {
  std::error_code error;
  return choices.read(fs::exists(of_run(directory), error) ? of_run(directory) : TRY(of_machine(study.target)));
}
/// Before the first step: the run has its bytes by them.
Status write_choices(const Study& study, const fs::path& directory, const Choices& choices) {
  std::error_code error;
  if (choices.changed()) {
    const fs::path file = TRY(of_machine(study.target));
    std::error_code gone;  // the cache may be deleted at any time
    if (Status written = choices.write(file); !written && fs::exists(file.parent_path(), gone)) return written;
  }
  if (choices.changed() || !fs::exists(of_run(directory), error)) TRY_STATUS(choices.write(of_run(directory)));
  return ok();
}

std::string loss_text(const ValidationRecord& said) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", said.best);
  return std::string("the lowest validation loss, ") + text + ", was at step " + std::to_string(said.best_step);
}

std::string stopping_text(const Recipe& recipe, const ValidationRecord& said) {
  return "early stopping: " + std::to_string(said.without) + (said.without == 1 ? " validation" : " validations") +
         " without a lower loss (patience = " + std::to_string(recipe.validate.patience) + "); " + loss_text(said);
}

/// The model as the last step left it, or as it was where the validation loss was lowest.
Status export_run(Session& session, const fs::path& directory, const TrainOptions& options) {
  const ValidationRecord said = session.validations();
  const auto best = session.study().recipe.save.best ? TRY(find_best(directory, said)) : std::optional<fs::path>();
  if (best) TRY_STATUS(session.load_weights(*best));
  const Recipe& recipe = session.study().recipe;
  Party& party = session.party();
  const auto write = [&]() -> Status {
    if (!party.leads() && !session.study().program.segment(SegmentKind::Export).exchanges()) return ok();
    TRY_STATUS(session.export_model(directory));
    return party.leads() ? write_result(directory, recipe, session.executor().exported()) : ok();
  };
  TRY_STATUS(party.first_error(ok()));  // after an exchange that was ended, nobody may keep its numbers
  TRY_STATUS(party.first_error(write()));
  if (!recipe.save.best) return ok();
  return tell(options, [&](Observer& o) {
    return o.note(best ? "exported from the best state: " + loss_text(said)
                       : "exported from the last step: no validation had a finite loss");
  });
}

/// The memory that the device gave, which is what was planned.
Result<std::vector<int64_t>> allocated(const Study& study, const Executor& executor) {
  std::vector<int64_t> out;
  for (size_t c = 0; c < study.plan.classes.size(); ++c) {
    out.push_back(executor.allocated(c));
    if (out[c] != study.plan.classes[c].planned)
      return run_error("memory '" + study.target.memories[c].name + "': planned " + std::to_string(study.plan.classes[c].planned) +
                       " bytes, allocated " + std::to_string(out[c]));
  }
  return out;
}

/// "interrupted after step 3": the hint says how to go on.
Error interrupted(const std::string& when, const fs::path& directory) {
  return {Exit::Interrupted, "interrupted " + when, "continue with: galley resume " + directory.string()};
}

/// The steps of a run, with what follows them: validation, early stopping, saving.
class Loop {
 public:
  Loop(const Study& study, Session& session, const fs::path& directory, const TrainOptions& options, int64_t last)
      : recipe_(study.recipe), session_(session), directory_(directory), options_(options), last_(last) {
    ends_ = std::ranges::any_of(study.program.stops, &StopFlag::done);
  }
  /// Whether the steps that were asked for are done.
  bool reached() const { return session_.steps_done() >= last_ || pauses(session_.steps_done()); }

  /// Whether any process has been asked to stop; if not, steps are enqueued up to a new goal. Of several all learn of it at the same step.
  Result<bool> stops() {
    const int64_t goal = furthest();
    bool asked = options_.stop && options_.stop(goal);
    if (!session_.party().alone()) asked = TRY(session_.party().any(asked));
    goal_ = asked ? session_.steps_enqueued() : goal;
    return asked;
  }
  /// Before the first step of a run, if the recipe wants it. Nothing is lost if it is interrupted.
  Status validate_start() {
    if (session_.steps_done() != 0) return ok();
    Status first = validates() && recipe_.validate.start ? validate(0) : ok();
    if (first && options_.write && recipe_.evaluate.start) first = write(0);
    return first || first.error().exit == Exit::Interrupted ? ok() : std::move(first);
  }
  /// Up to the last step, or to one after which the run is saved because it is to stop; says whether it has come to the last one.
  Result<bool> run() {
    while (session_.steps_done() < last_) {
      while (session_.steps_enqueued() < goal_) {
        for (Observer* observer : options_.observers) observer->enqueues(session_.steps_enqueued() + 1);
        TRY_STATUS(session_.enqueue());
      }
      const StepEvent event = TRY(session_.finished());
      TRY_STATUS(session_.party().check());  // an exchange that was ended leaves numbers that nobody may keep
      TRY_STATUS(tell(options_, [&](Observer& o) { return o.step(event); }));
      if (!session_.ended().empty() && event.step < last_) {
        last_ = event.step;
        TRY_STATUS(
            tell(options_, [&](Observer& o) { return o.note("step " + std::to_string(last_) + " is the last: " + session_.ended()); }));
      }
      if (validated(event.step)) TRY_STATUS(validate_step(event.step));
      if (writes(event.step)) TRY_STATUS(write(event.step));
      const bool stopping = (TRY(stops()) || pauses(event.step)) && event.step < last_ && session_.steps_enqueued() == event.step;
      if (event.step == last_) TRY_STATUS(session_.finish());
      if (scheduled(recipe_, event.step, last_) || stopping) TRY_STATUS(save(event.step));
      if (stopping) return false;
    }
    return true;
  }

 private:
  bool validates() const { return recipe_.validate.every > 0 && session_.evaluates(); }
  bool validated(int64_t step) const {
    return validates() && (step % recipe_.validate.every == 0 || (recipe_.validate.end && step == last_));
  }
  /// What a step is followed by has to find it done.
  bool followed(int64_t step) const { return ends_ || scheduled(recipe_, step, last_) || validated(step) || writes(step) || pauses(step); }
  bool writes(int64_t step) const {
    const int64_t every = recipe_.evaluate.every;
    return options_.write && (step == last_ || (every > 0 && step % every == 0));
  }
  bool pauses(int64_t step) const { return options_.until > 0 && step >= options_.until; }
  /// The step up to which they may be enqueued before the next one is finished: at least one, and as many as the session runs ahead.
  int64_t furthest() const {
    const int64_t done = session_.steps_done();
    int64_t step = session_.steps_enqueued();
    while (step < last_ && (step == done || (step - done < session_.depth() && !followed(step)))) ++step;
    return step;
  }
  /// Before the first step.
  bool stops_at_start() const { return session_.party().alone() && options_.stop && options_.stop(0); }

  /// After a step it runs to its end: a run that is interrupted there would miss the step's value.
  Status validate(int64_t step) {
    ValidationEvent event = {.step = step};
    const auto begin = std::chrono::steady_clock::now();
    validation_ = TRY(session_.evaluate([&](int64_t batch, int64_t batches) -> Status {
      if (step == 0 && stops_at_start()) return Error{Exit::Interrupted, "interrupted in validation batch " + std::to_string(batch), ""};
      return tell(options_, [&](Observer& o) { return o.validating({step, batch, batches}); });
    }));
    event.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    event.loss = validation_.loss;
    event.reported = validation_.reported;
    event.best = step > 0 && note_validation(recipe_, step, event.loss, &session_.validations());
    TRY_STATUS(tell(options_, [&](Observer& o) { return o.validated(event); }));
    return event.best && recipe_.save.best ? session_.save(directory_ / best_folder, 1) : ok();
  }

  Status write(int64_t step) {
    TextsEvent event = TRY(options_.write(session_, [&](int64_t done, int64_t all) -> Status {
      if (step == 0 && stops_at_start()) return Error{Exit::Interrupted, "interrupted while texts were written", ""};
      return tell(options_, [&](Observer& o) { return o.writing(step, done, all); });
    }));
    event.step = step;
    return tell(options_, [&](Observer& o) { return o.written(event); });
  }

  Status validate_step(int64_t step) {
    TRY_STATUS(validate(step));
    const ValidationRecord& said = session_.validations();
    if (step >= last_ || !out_of_patience(recipe_, said)) return ok();
    last_ = step;
    return tell(options_, [&](Observer& o) { return o.note(stopping_text(recipe_, said)); });
  }

  Status save(int64_t step) {
    const fs::path states = directory_ / "state";
    TRY_STATUS(tell(options_, [](Observer& o) { return o.saving(); }));
    TRY_STATUS(session_.save(states, recipe_.save.keep + 1));
    return scheduled(recipe_, step, last_) && session_.party().leads() ? drop_unscheduled(states, recipe_, step, last_) : ok();
  }

  const Recipe& recipe_;
  Session& session_;
  const fs::path& directory_;
  const TrainOptions& options_;
  int64_t last_;
  bool ends_ = false;               // any step may be the last one
  int64_t goal_ = 0;                // steps are enqueued up to this one
  Session::Validation validation_;  // the last one
};

/// What is to be said of a run that is over.
Status tell_notes(const Session& session, const TrainOptions& options) {
  const auto note = [&](const std::vector<std::string>& names, const char* what) -> Status {
    constexpr size_t most = 4;
    const std::string list = listed(names, most) + (names.size() > most ? " (" + std::to_string(names.size()) + ")" : "");
    return names.empty() ? ok() : tell(options, [&](Observer& o) { return o.note("note: " + list + " " + what); });
  };
  TRY_STATUS(note(session.proof().without_gradient(), "never got a gradient: not trained"));
  TRY_STATUS(note(session.proof().unmoved(), "never moved: their updates are smaller than their rounding"));
  for (const std::string& warning : session.warnings())
    TRY_STATUS(tell(options, [&](Observer& o) { return o.note("warning: " + warning); }));
  return ok();
}

/// Returns the strategies of the recipe that listen, and others.
std::vector<Listeners::Maker> makers(const Study& study, std::vector<const LoadedStrategy*> strategies) {
  std::vector<Listeners::Maker> out;
  for (const auto& s : study.loaded) strategies.push_back(s.get());
  for (const LoadedStrategy* s : strategies)
    if (s->observer()) out.push_back({s->caller(), *s->observer(), s->instance()});
  return out;
}

/// The lock of the directory has been taken, and the options say whose the run is.
Status train_locked(const Study& study, const OpenSource& open, const fs::path& directory, const TrainOptions& options) {
  const Recipe& recipe = study.recipe;
  const fs::path states = directory / "state";

  // Where a run may read its own folder only, it is to write there, too.
  for (const char* written : {"state", best_folder, "model", "adapter"}) TRY_STATUS(Confinement::check(directory / written));
  Party& party = *options.session.party;
  std::optional<fs::path> latest;
  int64_t done = 0, last = recipe.steps;
  const auto look = [&]() -> Status {
    latest = TRY(find_latest(states));
    done = latest ? step_of(*latest) : 0;
    // Early stopping makes the step of its validation the last one, and so may a strategy.
    if (latest && TRY(ends_with(study, *latest))) last = done;
    if (!party.leads()) return ok();
    // A process that was killed between a save and the removal of older states left both.
    if (latest && scheduled(recipe, done, last)) return drop_unscheduled(states, recipe, done, last);
    return clean_states(states, recipe.save.keep + 1);
  };
  TRY_STATUS(party.in_turns(look));
  const Subject found[] = {{"the newest state", latest ? latest->filename().string() : ""}};
  TRY_STATUS(party.agree(found));
  if (done >= last && (!recipe.save.final || exported(study.program, directory))) {
    if (latest) TRY_STATUS(TRY(Session::open(study, nullptr, options.session))->check_base(*latest));
    return tell(options, [&](Observer& o) {
      return o.note("nothing left to do: all " + std::to_string(last) + " steps are done; --steps N --out NEW goes on to step N");
    });
  }

  if (latest && recipe.save.best) (void)TRY(find_best(directory, TRY(read_state(*latest)).validation));
  if (options.until > 0 && done >= options.until && done < last) return tell(options, [&](Observer& o) { return o.paused(done, last); });
  SessionOptions session_options = options.session;
  Choices choices;
  if (recipe.tune) {
    TRY_STATUS(read_choices(study, directory, choices));
    session_options.choices = &choices;
  }
  session_options.loading = [&](int64_t loaded, int64_t all) { return tell(options, [&](Observer& o) { return o.loading(loaded, all); }); };
  std::unique_ptr<Session> session;
  const auto begin = [&]() -> Status {
    session = TRY(Session::open(study, TRY(open()), session_options));
    return recipe.tune ? write_choices(study, directory, choices) : ok();
  };
  TRY_STATUS(party.first_error(begin()));
  TRY_STATUS(party.first_error(latest ? session->resume(*latest) : session->start()));
  TRY_STATUS(session->agree());
  const StartEvent start = {study, directory, session->steps_done(), TRY(allocated(study, session->executor()))};
  TRY_STATUS(tell(options, [&](Observer& o) { return o.started(start); }));

  Loop loop(study, *session, directory, options, last);
  TRY_STATUS(loop.validate_start());
  if (TRY(loop.stops())) return interrupted("before step " + std::to_string(session->steps_done() + 1), directory);
  const bool complete = TRY(loop.run());
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const ValidationRecord said = session->validations();
  const EndEvent end = {start,    TRY(session->executor().usage()), int64_t{usage.ru_maxrss} * 1024, session->steps_done(), said.best_step,
                        said.best};
  TRY_STATUS(tell(options, [&](Observer& o) { return o.ended(end); }));
  if (!complete && loop.reached()) return tell(options, [&](Observer& o) { return o.paused(session->steps_done(), last); });
  if (!complete) return interrupted("after step " + std::to_string(session->steps_done()) + ", which is saved", directory);
  TRY_STATUS(tell_notes(*session, options));
  TRY_STATUS(tell(options, [](Observer& o) { return o.saving(); }));
  return recipe.save.final ? export_run(*session, directory, options) : ok();
}

}  // namespace

Result<bool> ends_with(const Study& study, const fs::path& latest) {
  const bool ends = std::ranges::any_of(study.program.stops, &StopFlag::done);
  if (!ends && study.recipe.validate.patience == 0) return false;
  const StateInfo said = TRY(read_state(latest));
  return !said.ended.empty() || out_of_patience(study.recipe, said.validation);
}

Result<bool> is_complete(const Study& study, const fs::path& directory) {
  const auto latest = TRY(find_latest(directory / "state"));
  if (!latest || !exported(study.program, directory)) return false;
  return step_of(*latest) >= study.recipe.steps || TRY(ends_with(study, *latest));
}

Status train(const Study& study, const OpenSource& open, const fs::path& directory, const TrainOptions& options) {
  TrainOptions told = options;
  std::unique_ptr<Party> alone;
  if (!options.session.party) {
    alone = TRY(Party::open({}));
    told.session.party = alone.get();
  }
  Party& party = *told.session.party;
  std::optional<RunLock> lock;
  const auto take = [&]() -> Status {
    lock.emplace(TRY(RunLock::take(directory)));
    return ok();
  };
  TRY_STATUS(party.once(take));
  Listeners listeners(party.leads() ? makers(study, options.listeners) : std::vector<Listeners::Maker>(), options.observers);
  told.observers.push_back(&listeners);
  Status trained = listeners.finish(train_locked(study, open, directory, told));
  if (trained || trained.error().exit == Exit::Interrupted) party.end();
  return trained;
}

}  // namespace galley
