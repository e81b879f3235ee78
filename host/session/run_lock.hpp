// One process at a time works in a run's directory.
#pragma once

#include <filesystem>

#include "host/base/result.hpp"

namespace galley {

/// Holds the directory itself, so that no file is left of it and the system gives it back however the process ends. File systems that
/// cannot lock a directory are worked on without.
class RunLock {
 public:
  /// An error, exit code Failed, names the process that has it.
  static Result<RunLock> take(const std::filesystem::path& directory);
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  explicit RunLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace galley
