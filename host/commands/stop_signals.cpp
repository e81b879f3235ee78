#include "host/commands/stop_signals.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>

namespace galley {
namespace {

/// Twice the step after which a run would stop now (−1: no run is under way), plus 1 once it has been asked to. One number: no step can begin
/// between what a signal is answered with and what the run sees.
std::atomic<int64_t> standing = -2;
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler sets it");
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
void answer(int signal, int64_t last_step) {
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
    for (int64_t rest = last_step; rest > 0; rest /= 10) digits[--at] = static_cast<char>('0' + rest % 10);
    add("after step ");
    add(digits + at);
  }
  add(signal == SIGINT ? "; Ctrl-C again ends at once\n" : "; the same signal again ends at once\n");
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, n);
}

void on_signal(int signal) {
  const int error = errno;
  const int64_t before = standing.fetch_or(1);
  if ((before & 1) == 0 && (signal == SIGINT || signal == SIGTERM)) answer(signal, before >> 1);
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
  standing = -2;
  first_time = 0;
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
  stops(start.steps_done);
  return ok();
}

bool StopSignals::asked() { return (standing & 1) != 0; }

bool StopSignals::stops(int64_t step) {
  int64_t before = standing;
  while ((before & 1) == 0 && !standing.compare_exchange_weak(before, step * 2)) continue;
  return (before & 1) != 0;
}

}  // namespace galley
