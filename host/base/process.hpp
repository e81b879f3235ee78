// Another process of this program: with its output in a file, a time that it may take, and an end when this one ends.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "host/base/result.hpp"

namespace galley {

/// A process whose output goes after what the file holds. It dies with this one. [main-thread]
class Process {
 public:
  /// The exit code of a process that could not begin with its program.
  static constexpr int kNotStarted = 127;

  /// `words`: the program and its arguments. `environment`: NAME=VALUE, beside what this process has.
  static Result<Process> start(const std::vector<std::string>& words, const std::filesystem::path& log,
                               const std::vector<std::string>& environment = {});
  Process(Process&& other) noexcept;
  Process& operator=(Process&&) = delete;
  /// Kills it if it still runs.
  ~Process();

  /// Waits for its end, which it returns: its exit code, or 128 and the signal that ended it. `stop` is asked meanwhile; true: it is told to
  /// save and end.
  int wait(const std::function<bool()>& stop);
  /// Waits so long at most. Nothing: it still runs.
  std::optional<int> wait_for(double seconds);
  void send(int signal) const;

 private:
  Process(pid_t pid, int handle) : pid_(pid), handle_(handle) {}
  pid_t pid_;
  int handle_;  // a pidfd; -1: the system has none
  std::optional<int> ended_;
};

}  // namespace galley
