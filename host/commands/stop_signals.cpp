#include "host/commands/stop_signals.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <ctime>

namespace galley {
namespace {

volatile std::sig_atomic_t asked_to_stop = 0;
volatile std::sig_atomic_t last_step = -1;   // the one after which a run would stop now; −1: no run is under way
volatile std::sig_atomic_t on_terminal = 0;  // stderr is a terminal: a line may stand there that is not at its end
volatile std::sig_atomic_t first_time = 0;   // milliseconds, of the first SIGINT or SIGTERM; 0: there was none

/// Milliseconds of the monotonic clock, never 0. Some programs (`timeout`, for example) send a signal twice: signals within kMoment
/// count as one.
int milliseconds() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<int>((t.tv_sec * 1000 + t.tv_nsec / 1'000'000) & 0x3fffffff) | 1;
}
constexpr int kMoment = 100;

/// Says what happens now: a step may take minutes, and whoever hears nothing presses Ctrl-C once more, which ends the run unsaved. Only what
/// a signal handler may call.
void answer(int signal) {
  char text[128];
  size_t n = 0;
  const auto add = [&](const char* part) {
    const size_t size = std::strlen(part);
    std::copy_n(part, size, text + n);
    n += size;
  };
  if (on_terminal) add("\n");
  add("stopping ");
  if (last_step < 0) {
    add("as soon as it is safe");
  } else if (last_step == 0) {
    add("before step 1");
  } else {
    char digits[24];
    size_t at = sizeof digits;
    digits[--at] = '\0';
    for (auto rest = static_cast<unsigned long>(last_step); rest > 0; rest /= 10) digits[--at] = static_cast<char>('0' + rest % 10);
    add("after step ");
    add(digits + at);
  }
  add(signal == SIGINT ? "; Ctrl-C again ends at once\n" : "; the same signal again ends at once\n");
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, n);
}

void on_signal(int signal) {
  const int error = errno;
  const bool first = !asked_to_stop;
  asked_to_stop = 1;  // before the answer: on another thread, steps go on meanwhile
  if (first && (signal == SIGINT || signal == SIGTERM)) answer(signal);
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
  last_step = -1;
  on_terminal = isatty(STDERR_FILENO) == 1;
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

Status StopSignals::started(const StartEvent& start) {
  install();
  enqueues(start.steps_done);
  return ok();
}

void StopSignals::enqueues(int64_t step) { last_step = static_cast<std::sig_atomic_t>(std::min<int64_t>(step, INT_MAX)); }

bool StopSignals::asked() { return asked_to_stop != 0; }

}  // namespace galley
