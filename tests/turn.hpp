// Cases that take turns: with each commit others run, and all of them in `make test-all`. galley_test.py has the same for scripts.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace galley::test {

/// Which of `parts` run with this commit; none where all do (GALLEY_TEST_ALL). An archive, which has no commit, has the first of them.
inline std::optional<uint64_t> turn(uint64_t parts) {
  if (std::getenv("GALLEY_TEST_ALL")) return {};
  static const std::string commit = [] {
    const char* source = std::getenv("GALLEY_SOURCE");
    ::setenv("GALLEY_TEST_TREE", source ? source : ".", 1);  // a path may have any character
    std::string text;
    if (FILE* said = ::popen("git -C \"$GALLEY_TEST_TREE\" rev-parse HEAD 2>/dev/null", "r")) {
      char line[128];
      if (std::fgets(line, sizeof line, said)) text = line;
      ::pclose(said);
    }
    ::unsetenv("GALLEY_TEST_TREE");
    return text;
  }();
  uint64_t part = 0;
  for (const char c : commit)
    if (std::isxdigit(static_cast<unsigned char>(c))) part = (part * 16 + std::stoul(std::string(1, c), nullptr, 16)) % parts;
  return part;
}

/// Whether case `k` of those that take so many turns runs with this commit.
inline bool has_turn(uint64_t k, uint64_t parts) {
  const auto this_turn = turn(parts);
  return !this_turn || k % parts == *this_turn;
}

/// A number of a case by its name, which stays the same when others are added.
inline uint64_t number_of(const std::string& name) {
  uint64_t sum = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : name) sum = (sum ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return sum >> 8;
}

}  // namespace galley::test
