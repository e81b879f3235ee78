// Listeners of a run in C++ (galley/observer.h). Header-only.
#pragma once

#include <memory>
#include <vector>

#include "galley/cpp/node.hpp"

namespace galley::sdk {

/// What a strategy reports of a step, or what a validation measures.
struct Metric {
  const char* name;  ///< valid as long as the event
  double value;
};

/// Those of an event: for (const Metric& metric : metrics(step)) …
template <class Event>
std::vector<Metric> metrics(const Event& event) {
  std::vector<Metric> out;
  for (uint64_t i = 0; i < event.n_metrics; ++i) out.push_back({event.metric_names[i], event.metric_values[i]});
  return out;
}

/// What a strategy's `listen` makes for a session. One thread calls it, between the steps. An event is valid during the call. After an
/// exception the listener is told nothing more but the end, and the run warns, or ends if the strategy says `ends_run`.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void step(const galley_step_event&) {}
  virtual void validated(const galley_validated_event&) {}
  /// A state is about to be saved, or the run to end: what has been told so far has to outlast it.
  virtual void saving() {}
  virtual void note(const char* /*text*/) {}
  /// Called once, also after a failure, and the last thing that it is told.
  virtual void ended(const galley_ended_event&) {}
};

namespace detail {

inline Listener& listener_of(void* listener) { return *static_cast<Listener*>(listener); }

inline galley_observer listener_table(decltype(galley_observer::started) started, uint64_t flags) {
  galley_observer t = fresh<galley_observer>();
  t.started = started;
  t.step = [](void* listener, const galley_step_event* event, galley_error* error) noexcept {
    return guard(error, [&] { listener_of(listener).step(read(event)); });
  };
  t.validated = [](void* listener, const galley_validated_event* event, galley_error* error) noexcept {
    return guard(error, [&] { listener_of(listener).validated(read(event)); });
  };
  t.saving = [](void* listener, galley_error* error) noexcept { return guard(error, [&] { listener_of(listener).saving(); }); };
  t.note = [](void* listener, const galley_note_event* event, galley_error* error) noexcept {
    return guard(error, [&] { listener_of(listener).note(read(event).text); });
  };
  t.ended = [](void* listener, const galley_ended_event* event, galley_error* error) noexcept {
    const std::unique_ptr<Listener> owned(&listener_of(listener));
    return guard(error, [&] { owned->ended(read(event)); });
  };
  t.flags = flags;
  return t;
}

}  // namespace detail
}  // namespace galley::sdk
