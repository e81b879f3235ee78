// Ctrl-C and its like, while there is something to finish.
#pragma once

#include <csignal>
#include <optional>

#include "host/session/events.hpp"

namespace galley {

/// Once installed, SIGINT, SIGTERM, SIGHUP (a terminal that was closed) and SIGPIPE (nobody reads stdout any more) ask for the end of the
/// run instead of ending the process; a second SIGINT or SIGTERM ends it at once. As an observer of a run, installs itself when the steps
/// begin: before there is nothing to finish, and signals do what they always do. One at a time, until it is destroyed. [main-thread]
class StopSignals final : public Observer {
 public:
  StopSignals() = default;
  ~StopSignals() override;
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  void install();
  static bool asked();

  Status started(const StartEvent&) override {
    install();
    return ok();
  }

 private:
  struct Before {
    struct sigaction interrupt, terminate, hang_up, pipe;
  };
  std::optional<Before> before_;
};

}  // namespace galley
