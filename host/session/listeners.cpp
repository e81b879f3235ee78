#include "host/session/listeners.hpp"

#include "host/plugins/abi.hpp"
#include "host/session/study.hpp"

namespace galley {

Listeners::Listeners(std::span<const Maker> makers, std::vector<Observer*> others) : others_(std::move(others)) {
  for (const Maker& maker : makers) listeners_.push_back({maker});
}

template <class Function, class... Event>
Status Listeners::tell(const char* what, Function galley_observer::*function, const Event*... event) {
  for (Listener& l : listeners_) {
    const Function call = l.maker.table.*function;
    if (!l.listens || !call) continue;
    const Status told = call_plugin(
        l.maker.caller, what, [&](galley_error* error) { return call(l.handle, event..., error); }, Phase::Run);
    if (!told.ok()) TRY_STATUS(failed(l, told.error()));
  }
  return ok();
}

Status Listeners::failed(Listener& listener, const Error& error) {
  listener.listens = false;
  const std::string cause = (step_ > 0 ? "step " + std::to_string(step_) + ": " : "") + error.cause;
  if (listener.maker.table.flags & GALLEY_OBSERVER_ENDS_RUN) return Error{error.exit, cause, error.hint};
  listener.failure = "warning: " + cause + (error.hint.empty() ? "" : " (" + error.hint + ")") + "; the run goes on without this listener";
  return say(listener.failure);
}

Status Listeners::say(const std::string& text) {
  for (Observer* other : others_) TRY_STATUS(other->note(text));
  return note(text);
}

template <class Event>
void Listeners::put(std::span<const ReportedMetric> reported, Event& out) {
  names_.clear();
  values_.clear();
  for (const ReportedMetric& metric : reported) {
    names_.push_back(metric.name);
    values_.push_back(metric.value);
  }
  out.metric_names = names_.data();
  out.metric_values = values_.data();
  out.n_metrics = names_.size();
}

Status Listeners::started(const StartEvent& start) {
  step_ = start.steps_done;
  auto event = new_struct<galley_started_event>();
  const std::string directory = start.directory.string();
  event.directory = directory.c_str();
  event.steps_done = start.steps_done;
  event.steps = start.study.recipe.steps;
  event.parameters = start.study.program.parameters;
  event.trainable = start.study.program.trainable;
  event.planned_bytes = start.study.peak_memory();
  for (Listener& l : listeners_) {
    const Status told = call_plugin(
        l.maker.caller, "started",
        [&](galley_error* error) {
          const galley_status status = l.maker.table.started(l.maker.instance, &event, &l.handle, error);
          l.made = status == GALLEY_OK;
          return status;
        },
        Phase::Run);
    l.listens = told.ok();
    if (!told.ok()) TRY_STATUS(failed(l, told.error()));
  }
  return ok();
}

Status Listeners::step(const StepEvent& m) {
  step_ = m.step;
  auto event = new_struct<galley_step_event>();
  event.step = m.step;
  event.loss = m.loss;
  event.grad_norm = m.grad_norm;
  event.lr = m.lr;
  event.epoch = m.epoch;
  event.seconds = m.seconds;
  event.aside = m.aside;
  event.tokens = m.tokens;
  event.positions = m.positions;
  event.micro_batches = m.micro_batches;
  event.flags = m.applied ? GALLEY_STEP_APPLIED : 0;
  put(m.reported, event);
  return tell("step", &galley_observer::step, &event);
}

Status Listeners::validated(const ValidationEvent& v) {
  auto event = new_struct<galley_validated_event>();
  event.step = v.step;
  event.loss = v.loss;
  event.seconds = v.seconds;
  event.flags = v.best ? GALLEY_VALIDATED_BEST : 0;
  put(v.reported, event);
  return tell("validated", &galley_observer::validated, &event);
}

Status Listeners::saving() { return tell("saving", &galley_observer::saving); }

Status Listeners::note(const std::string& text) {
  auto event = new_struct<galley_note_event>();
  event.text = text.c_str();
  return tell("note", &galley_observer::note, &event);
}

Status Listeners::paused(int64_t, int64_t) {
  paused_ = true;
  return ok();
}

Status Listeners::finish(Status ran) {
  // The first error is the run's; what comes later is said.
  const auto keep = [&](Status status) {
    if (ran.ok()) ran = std::move(status);
    else if (!status.ok()) (void)say("warning: " + status.error().cause);
  };
  for (const Listener& l : listeners_)
    if (!l.failure.empty()) keep(say(l.failure));
  for (Listener& l : listeners_) {
    if (!l.made) continue;
    auto event = new_struct<galley_ended_event>();
    const bool interrupted = ran.ok() ? paused_ : ran.error().exit == Exit::Interrupted;
    event.how = interrupted ? GALLEY_ENDED_INTERRUPTED : ran.ok() ? GALLEY_ENDED_DONE : GALLEY_ENDED_FAILED;
    event.steps_done = step_;
    if (event.how == GALLEY_ENDED_FAILED) event.error = ran.error().cause.c_str();
    l.listens = l.made = false;
    const Status told = call_plugin(
        l.maker.caller, "ended", [&](galley_error* error) { return l.maker.table.ended(l.handle, &event, error); }, Phase::Run);
    if (!told.ok()) keep(failed(l, told.error()));
  }
  return ran;
}

}  // namespace galley
