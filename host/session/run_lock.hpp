// Locks a run's directory, so that one process at a time works in it.
#pragma once

#include <filesystem>

#include "host/base/result.hpp"

namespace galley {

/// Locks the directory itself, so that it leaves no file, and the system unlocks it however the process ends. On file systems that cannot
/// lock a directory there is no lock.
class RunLock {
 public:
  /// Takes the lock. If another process has it, the error (exit code Failed) names that process.
  static Result<RunLock> take(const std::filesystem::path& directory);
  RunLock(RunLock&& other) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

 private:
  explicit RunLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

}  // namespace galley
