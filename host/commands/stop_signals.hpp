// Ctrl-C and its like, while a run goes on.
#pragma once

#include <csignal>

namespace galley {

/// While it lives, SIGINT and SIGTERM ask for the end of the run instead of ending the process. One at a time. [main-thread]
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static bool asked();

 private:
  struct sigaction interrupt_ = {}, terminate_ = {};
};

}  // namespace galley
