#include "host/plugins/fault.hpp"

#include <execinfo.h>
#include <sys/syscall.h>
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
  /// Of control characters, which a terminal would obey, there stay question marks.
  Line& operator<<(std::string_view text) {
    for (size_t i = 0; i < text.size() && used_ < sizeof text_ - 1; ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const bool wide = byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
      text_[used_++] = byte < 0x20 || byte == 0x7f || wide ? '?' : text[i];
      i += wide;
    }
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

/// Code of plugins. Written by one thread, read wherever a fault happens.
struct LibraryCode {
  const void *begin = nullptr, *end = nullptr;
  const char* plugin = nullptr;
};
constexpr size_t kMostLibraries = 512;
LibraryCode plugin_code[kMostLibraries];
std::atomic<size_t> n_libraries = 0;

const char* plugin_at(const void* address) {
  const size_t n = n_libraries.load(std::memory_order_acquire);
  for (size_t i = 0; i < n; ++i)
    if (address >= plugin_code[i].begin && address < plugin_code[i].end) return plugin_code[i].plugin;
  return nullptr;
}

/// The plugin in whose code this thread is, by its calls from the innermost on.
const char* plugin_here() {
  void* calls[64];
  const int n = ::backtrace(calls, 64);
  for (int i = 0; i < n; ++i)
    if (const char* plugin = plugin_at(calls[i])) return plugin;
  return nullptr;
}

enum class When { Anywhere, InPlugins };

/// "galley: plugin 'ID' <did> in WHAT<how>; kernel …". False: nothing is being called, and nothing is said.
bool tell(std::string_view did, std::string_view how, When when) {
  // A thread that no call is on may be one of a call's own, or one that an earlier call has left.
  const CallMark* mark = Calling::innermost();
  const char* left = Calling::here() ? nullptr : plugin_here();
  if (left && (!mark || mark->plugin != left)) {
    Line line;
    line << "galley: plugin '" << left << "' " << did << " in a thread of its own" << how;
    line.write();
    return true;
  }
  if (!mark && when == When::InPlugins) return false;
  Line line;
  if (!mark) {
    line << "galley: the program " << did << how << ", outside of plugins' calls";
    line.write();
    return true;
  }
  // The innermost mark that knows the node says most: a device's `launch` stands within the call of a kernel.
  for (const CallMark* m = mark; m; m = m->outer)
    if (!m->node.empty()) {
      mark = m;
      break;
    }
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
    tell("died", how, When::Anywhere);
  } else
    while (first != ::gettid()) ::pause();
  // Now the process dies as it would have, with a core where the system writes one.
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

pid_t program = 0;
std::atomic<int> ending = -1;  // the exit code; -1: the command is at work

[[noreturn]] void end_now(int code) {
  ::syscall(SYS_exit_group, code);
  __builtin_unreachable();
}

/// Half a run must not look like a whole one, whatever status the plugin chose.
void ended() {
  if (ending >= 0 || ::getpid() != program) return;
  if (!tell("ended the process", "", When::InPlugins)) {
    Line line;
    line << "galley: the process was ended before the command was done, by a thread that none of its calls is on";
    line.write();
  }
  std::fflush(nullptr);
  end_now(static_cast<int>(Exit::Plugin));
}

}  // namespace

void note_library(const void* begin, const void* end, const char* plugin) {
  const size_t n = n_libraries.load(std::memory_order_relaxed);
  if (n == kMostLibraries) return;
  plugin_code[n] = {begin, end, plugin};
  n_libraries.store(n + 1, std::memory_order_release);
}

void command_ends(int code) { ending = code; }

void leave(int code) {
  if (::getpid() != program) end_now(code);
  ended();
  end_now(ending);
}

void name_faults() {
  program = ::getpid();
  std::atexit(ended);
  std::at_quick_exit(ended);
  void* first[1];
  (void)::backtrace(first, 1);  // loads what it needs now, and not where memory may be broken
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
