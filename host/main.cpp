#include <malloc.h>

#include "host/commands/cli.hpp"

int main(int argc, char** argv) {
  // Training asks the system for no memory between its first and its last step: one heap for all threads, grown ahead and never given back.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_TOP_PAD, 16 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
  return galley::run_program({argv + 1, argv + argc});
}
