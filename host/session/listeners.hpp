// What plugins listen with (galley/observer.h): all listeners of a run, as one observer of it.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "galley/observer.h"
#include "host/plugins/call.hpp"
#include "host/session/events.hpp"

namespace galley {

/// One that fails is told nothing more but the end. Unless it is to end the run, `others` are told of that by a note, at once and again at
/// the end.
class Listeners final : public Observer {
 public:
  /// A strategy that listens, with its instance.
  struct Maker {
    const Caller& caller;
    const galley_observer& table;
    void* instance;
  };
  Listeners(std::span<const Maker> makers, std::vector<Observer*> others);

  Status started(const StartEvent& start) override;
  Status step(const StepEvent& m) override;
  Status validated(const ValidationEvent& v) override;
  Status saving() override;
  Status note(const std::string& text) override;
  Status paused(int64_t step, int64_t steps) override;
  /// Ends all that were made, whatever has come of the run: `ran`, which becomes the result, or the error of one that ends the run.
  Status finish(Status ran);

 private:
  struct Listener {
    Maker maker;
    void* handle = nullptr;
    bool made = false, listens = false;
    std::string failure = {};  ///< the warning
  };
  template <class Function, class... Event>
  Status tell(const char* what, Function galley_observer::*function, const Event*... event);
  Status failed(Listener& listener, const Error& error);
  Status say(const std::string& text);
  /// The metrics of an event as the ABI has them.
  template <class Event>
  void put(std::span<const ReportedMetric> reported, Event& out);

  std::vector<Listener> listeners_;
  std::vector<Observer*> others_;
  int64_t step_ = 0;  ///< the last one that is done
  bool paused_ = false;
  std::vector<const char*> names_;  ///< of metrics; these keep their memory
  std::vector<double> values_;
};

}  // namespace galley
