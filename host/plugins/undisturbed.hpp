// What a plugin has to leave as it finds it, because everybody else in the process relies on it.
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "host/base/arithmetic.hpp"

namespace galley {

/// Looks before and after a call of a plugin. How the processor rounds, and whether the process has been forked, it looks at each time; at
/// what takes calls of the system, the first time that this thread calls this function of this plugin: the standard streams, the current
/// folder, the locale, blocked signals, and the rights of new files.
class Undisturbed {
 public:
  /// Which function of a plugin: its name, and for kernels theirs.
  Undisturbed(std::string_view plugin, std::string_view what, std::string_view kernel = {});
  /// What is another now: "it left the locale changed"; "": nothing. It has been put back where that is possible.
  std::string disturbed() const;

 private:
  struct Process {
    std::array<struct stat, 3> streams = {};
    struct stat folder = {};
    sigset_t blocked = {};
    std::array<char, 1024> locale = {};  ///< no allocation; longer names are cut
  };
  static Process look();
  static std::string put_back(const Process& before);

  Arithmetic arithmetic_;
  uint32_t forks_ = 0;
  std::optional<Process> process_;
};

}  // namespace galley
