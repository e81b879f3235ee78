// Handles Ctrl-C and similar signals during training.
#pragma once

#include <csignal>
#include <optional>

#include "host/session/events.hpp"

namespace galley {

/// Once installed, SIGINT, SIGTERM, SIGHUP (the terminal was closed) and SIGPIPE (nobody reads stdout any more) request the end of the run
/// instead of ending the process; a second SIGINT or SIGTERM ends it at once. As an observer of a run, it installs itself when the steps
/// begin: before that there is nothing to finish, and signals have their default effect. The first signal is answered at once, on stderr.
/// One instance at a time. [main-thread]
class StopSignals final : public Observer {
 public:
  StopSignals() = default;
  ~StopSignals() override;
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  void install();
  static bool asked();
  /// Returns asked(). If false, `step` is now the one after which the run would stop, which is what a signal from here on is answered with.
  static bool stops(int64_t step);

  Status started(const StartEvent& start) override;

 private:
  struct Before {
    struct sigaction interrupt, terminate, hang_up, pipe;
  };
  std::optional<Before> before_;
};

}  // namespace galley
