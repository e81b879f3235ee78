#include "host/commands/stop_signals.hpp"

#include <cerrno>
#include <ctime>

namespace galley {
namespace {

volatile std::sig_atomic_t asked_to_stop = 0;
volatile std::sig_atomic_t first_time = 0;  // milliseconds, of the first SIGINT or SIGTERM; 0: there was none

/// Milliseconds of the monotonic clock, never 0. Some programs (`timeout`, for example) send a signal twice: signals within kMoment
/// count as one.
int milliseconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int>((t.tv_sec * 1000 + t.tv_nsec / 1'000'000) & 0x3fffffff) | 1;
}
constexpr int kMoment = 100;

void on_signal(int signal) {
  const int error = errno;
  asked_to_stop = 1;
  if (signal == SIGINT || signal == SIGTERM) {
    const int now = milliseconds();
    if (first_time == 0) {
      first_time = now;
    } else if (now - first_time > kMoment || now < first_time) {
      struct sigaction action = {};
      action.sa_handler = SIG_DFL;
      sigaction(signal, &action, nullptr);
      ::raise(signal);  // comes through when this handler returns
    }
  }
  errno = error;
}

}  // namespace

void StopSignals::install() {
  if (before_) return;
  before_.emplace();
  asked_to_stop = 0;
  first_time = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, &before_->interrupt);
  sigaction(SIGTERM, &action, &before_->terminate);
  sigaction(SIGPIPE, &action, &before_->pipe);
  sigaction(SIGHUP, &action, &before_->hang_up);
  if (before_->hang_up.sa_handler == SIG_IGN) sigaction(SIGHUP, &before_->hang_up, nullptr);  // nohup
}

StopSignals::~StopSignals() {
  if (!before_) return;
  sigaction(SIGINT, &before_->interrupt, nullptr);
  sigaction(SIGTERM, &before_->terminate, nullptr);
  sigaction(SIGPIPE, &before_->pipe, nullptr);
  sigaction(SIGHUP, &before_->hang_up, nullptr);
}

bool StopSignals::asked() { return asked_to_stop != 0; }

}  // namespace galley
