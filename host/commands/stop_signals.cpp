#include "host/commands/stop_signals.hpp"

namespace galley {
namespace {

volatile std::sig_atomic_t stop_signal = 0;

void on_signal(int signal) { stop_signal = signal; }

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

}  // namespace galley
