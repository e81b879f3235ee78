#include "host/plugins/fault.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "host/base/result.hpp"

namespace galley {
namespace {

/// A line in a buffer of its own: nothing here may allocate or lock.
class Line {
 public:
  Line& operator<<(std::string_view text) {
    const size_t n = std::min(text.size(), sizeof text_ - 1 - used_);
    std::memcpy(text_ + used_, text.data(), n);
    used_ += n;
    return *this;
  }
  void write() {
    text_[used_] = '\n';
    for (size_t done = 0; done <= used_;) {
      const ssize_t n = ::write(STDERR_FILENO, text_ + done, used_ + 1 - done);
      if (n <= 0) return;
      done += static_cast<size_t>(n);
    }
  }

 private:
  char text_[1024];
  size_t used_ = 0;
};

std::string_view name_of(int signal) {
  switch (signal) {
    case SIGSEGV: return "a memory access that is not allowed (SIGSEGV)";
    case SIGBUS: return "a memory access that failed (SIGBUS)";
    case SIGFPE: return "an arithmetic error (SIGFPE)";
    case SIGILL: return "an illegal instruction (SIGILL)";
    default: return "an abort (SIGABRT)";
  }
}

/// "galley: plugin 'ID' <did> in WHAT<how>; kernel …". False: no plugin is being called.
bool tell(std::string_view did, std::string_view how) {
  // The innermost mark that knows the node says most: a device's `launch` stands within the call of a kernel.
  const CallMark* mark = Calling::innermost();
  if (!mark) return false;
  for (const CallMark* m = mark; m; m = m->outer)
    if (!m->node.empty()) {
      mark = m;
      break;
    }
  Line line;
  line << "galley: plugin '" << mark->plugin << "' " << did << " in " << mark->what << how;
  if (!mark->kernel.empty()) line << "; kernel '" << mark->kernel << "'";
  if (!mark->node.empty()) line << ", node '" << mark->node << "'";
  if (!mark->strategy.empty()) line << ", " << mark->strategy;
  line.write();
  return true;
}

[[maybe_unused]] void die(int signal) {  // under sanitizers nobody calls it
  // Threads of one kernel may fault together: the first one tells, the others wait for the end. One that faults in telling ends at once.
  static std::atomic<pid_t> telling = 0;
  pid_t first = 0;
  if (telling.compare_exchange_strong(first, ::gettid())) {
    char how[96] = " of ";
    const std::string_view name = name_of(signal);
    std::memcpy(how + 4, name.data(), std::min(name.size(), sizeof how - 5));
    tell("died", how);
  } else
    while (first != ::gettid()) ::pause();
  // Now the process dies as it would have, with a core where the system writes one.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

/// Half a run must not look like a whole one, whatever status the plugin chose.
void ended() {
  if (!tell("ended the process", "")) return;
  std::fflush(nullptr);
  ::_exit(static_cast<int>(Exit::Plugin));
}

}  // namespace

void name_faults() {
  std::atexit(ended);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A stack of its own, so that a stack that overflowed can be told too.
  static char stack[64 << 10];
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof stack;
  ::sigaltstack(&alternate, nullptr);
  struct sigaction action = {};
  action.sa_handler = die;
  action.sa_flags = SA_NODEFER | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) ::sigaction(signal, &action, nullptr);
#endif
}

}  // namespace galley
