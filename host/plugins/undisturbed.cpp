#include "host/plugins/undisturbed.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <clocale>
#include <cstring>
#include <functional>

#include "host/base/result.hpp"
#include "host/plugins/fault.hpp"
#include "host/plugins/host_table.hpp"

namespace galley {
namespace {

thread_local uint32_t forks = 0;    // by this thread: another one of the host may start a program meanwhile
std::atomic<bool> is_copy = false;  // of a process that was forked in a call of a plugin

/// Copies of the standard output and error, far from where libraries look, so that there is something to say it with.
int kept_streams[3] = {-1, -1, -1};
mode_t rights_of_new_files = 0022;

bool same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

struct stat stat_of(int descriptor) {
  struct stat out = {};
  ::fstat(descriptor, &out);
  return out;
}

/// Whether this thread has not asked of this hash before. A table of a fixed size, since steps of a run ask the system for no memory; what
/// no longer finds room counts as asked.
bool asked_first(size_t hash) {
  constexpr size_t places = 4096;
  static thread_local std::array<size_t, places> table = {};
  hash |= 1;
  for (size_t i = 0; i < 64; ++i) {
    size_t& at = table[(hash / 2 + i) % places];
    if (at == hash) return false;
    if (at != 0) continue;
    at = hash;
    return true;
  }
  return false;
}

bool watch_process() {
  pthread_atfork(
      nullptr, [] { ++forks; }, [] { is_copy = Calling::here() != nullptr; });
  rights_of_new_files = ::umask(0);
  ::umask(rights_of_new_files);
  for (int d = 0; d < 3; ++d) kept_streams[d] = ::fcntl(d, F_DUPFD_CLOEXEC, 900 + d);
  return true;
}

}  // namespace

Undisturbed::Undisturbed(std::string_view plugin, std::string_view what, std::string_view kernel)
    : arithmetic_(Arithmetic::now()), forks_(forks) {
  static const bool watched = watch_process();
  (void)watched;
  const std::hash<std::string_view> hash;
  if (asked_first(hash(plugin) * 31 * 31 + hash(what) * 31 + hash(kernel))) process_ = look();
}

Undisturbed::Process Undisturbed::look() {
  Process out;
  for (size_t d = 0; d < out.streams.size(); ++d) out.streams[d] = stat_of(static_cast<int>(d));
  ::stat(".", &out.folder);
  sigemptyset(&out.blocked);
  pthread_sigmask(SIG_SETMASK, nullptr, &out.blocked);
  std::strncpy(out.locale.data(), std::setlocale(LC_ALL, nullptr), out.locale.size() - 1);
  return out;
}

std::string Undisturbed::put_back(const Process& before) {
  const Process now = look();
  std::string wrong;
  constexpr const char* names[] = {"input", "output", "error"};
  for (int d = 0; d < 3; ++d) {
    const auto at = static_cast<size_t>(d);
    if (same_file(before.streams[at], now.streams[at])) continue;
    wrong = std::string("it closed or replaced the standard ") + names[d];
    if (same_file(before.streams[at], stat_of(kept_streams[d]))) ::dup2(kept_streams[d], d);
    else if (const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC); nothing >= 0 && nothing != d) {
      // No file that is opened later may come to be the standard error.
      ::dup2(nothing, d);
      ::close(nothing);
    }
  }
  if (!wrong.empty()) return wrong;
  if (!same_file(before.folder, now.folder)) return "it changed the current folder";
  if (before.locale != now.locale) {
    std::setlocale(LC_ALL, before.locale.data());
    return "it left the locale changed";
  }
  if (std::memcmp(&before.blocked, &now.blocked, sizeof(uint64_t)) != 0) {
    pthread_sigmask(SIG_SETMASK, &before.blocked, nullptr);
    return "it left other signals blocked";
  }
  return ::umask(rights_of_new_files) == rights_of_new_files ? "" : "it changed the rights of new files (umask)";
}

std::string Undisturbed::disturbed() const {
  const bool here = arithmetic_.put_back();
  const bool elsewhere = arithmetic_left_changed().load(std::memory_order_relaxed) && arithmetic_left_changed().exchange(false);
  // The copy is of one thread only, and has what the other has open: it must not go on beside it.
  if (is_copy) ::syscall(SYS_exit_group, static_cast<int>(Exit::Plugin));
  if (forks != forks_) return "it forked the process; to start a program there is posix_spawn";
  if (here || elsewhere) return "it left the processor rounding otherwise than before (fesetround, flush to zero)";
  if (const char* misused = take_misuse()) return misused;
  return process_ ? put_back(*process_) : "";
}

}  // namespace galley
