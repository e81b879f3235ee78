#include <fcntl.h>
#include <malloc.h>

#include <csignal>

#include "host/commands/cli.hpp"
#include "host/plugins/fault.hpp"

int main(int argc, char** argv) {
  // A file that is opened later must not become the standard output of a process that was started without one.
  const bool can_print = fcntl(1, F_GETFD) >= 0;
  for (int descriptor = 0; descriptor <= 2; ++descriptor)
    if (fcntl(descriptor, F_GETFD) < 0) (void)!open("/dev/null", O_RDWR);
  // Training asks the system for no memory between its first and its last step: one heap for all threads, grown ahead and never given back.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TOP_PAD, 16 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  // A write beyond the limit on sizes of files (ulimit -f) fails with EFBIG, like one to a full disk.
  (void)std::signal(SIGXFSZ, SIG_IGN);
  galley::name_faults();
  return galley::run_program({argv + 1, argv + argc}, can_print ? galley::Stdout::Open : galley::Stdout::Closed);
}
