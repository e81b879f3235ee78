#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstdio>

#include "host/commands/cli.hpp"
#include "host/commands/processes.hpp"
#include "host/plugins/fault.hpp"
#include "host/plugins/library.hpp"

// In the place of the system's for the whole process: a plugin that ends it so would leave half a run with exit code 0, and not a word.
extern "C" {
[[gnu::visibility("default")]] [[gnu::noreturn]] void _exit(int code) { galley::leave(code); }
[[gnu::visibility("default")]] [[gnu::noreturn]] void _Exit(int code) noexcept { galley::leave(code); }
}

namespace {

/// Of this thread and of those that are started. A stack grows up to a limit that is asked when it does.
bool make_room_on_the_stack() {
  constexpr rlim_t wanted = rlim_t{8} << 20, least = rlim_t{1} << 20;
  rlimit limit = {};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= wanted) return true;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  (void)setrlimit(RLIMIT_STACK, &limit);
  if (limit.rlim_cur < least) {
    std::fprintf(stderr, "galley: the stack may have %llu KiB, and Galley needs 1024\n  allow more: ulimit -s 8192\n",
                 static_cast<unsigned long long>(limit.rlim_cur >> 10));
    return false;
  }
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return true;
  pthread_attr_setstacksize(&attributes, limit.rlim_cur);
  (void)pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  // A file that is opened later must not become the standard output of a process that was started without one.
  const bool can_print = fcntl(1, F_GETFD) >= 0;
  for (int descriptor = 0; descriptor <= 2; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);
  if (!make_room_on_the_stack()) return 1;
  // Training asks the system for no memory between its first and its last step: one heap for all threads, grown ahead and never given back.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TOP_PAD, 16 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  // A write beyond the limit on sizes of files (ulimit -f) fails with EFBIG, like one to a full disk.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  galley::name_faults();
  const int code = galley::run_program({argv + 1, argv + argc}, can_print ? galley::Stdout::Open : galley::Stdout::Closed);
  if (code != 0) galley::command_ends(code);  // whoever has failed by itself ends the others, and perhaps this process with them
  galley::leave_processes();
  galley::close_libraries();
  galley::command_ends(code);
  return code;
}
