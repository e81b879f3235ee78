// Cases that take turns: with each commit others run, and all of them in `make test-all`. galley_test.py has the same for scripts.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace galley::test {

/// Whether case `k` of those that take so many turns runs with this commit. With GALLEY_TEST_ALL all do; an archive has no commit, and turn 0.
inline bool has_turn(uint64_t k, uint64_t turns) {
  if (std::getenv("GALLEY_TEST_ALL")) return true;
  static const std::string commit = [] {
    char line[128] = "";
    if (FILE* said = ::popen("git -C \"${GALLEY_SOURCE:-.}\" rev-parse HEAD 2>/dev/null", "r")) {
      if (!std::fgets(line, sizeof line, said)) line[0] = '\0';
      ::pclose(said);
    }
    return std::string(line, std::strspn(line, "0123456789abcdef"));
  }();
  uint64_t turn = 0;
  for (const char digit : commit) turn = (turn * 16 + static_cast<uint64_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10)) % turns;
  return k % turns == turn;
}

}  // namespace galley::test
