#include "host/session/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>
#include <utility>

#include "host/base/file.hpp"

namespace galley {
namespace {

/// The process that holds a lock on the file, as /proc/locks says it; 0: it does not.
long holder_of(int descriptor) {
  struct stat status;
  const auto locks = read_text("/proc/locks");
  if (!locks || ::fstat(descriptor, &status) != 0) return 0;
  char wanted[64];
  std::snprintf(wanted, sizeof wanted, "%02x:%02x:%llu", major(status.st_dev), minor(status.st_dev),
                static_cast<unsigned long long>(status.st_ino));
  std::istringstream lines(*locks);
  for (std::string line; std::getline(lines, line);) {
    // "1: FLOCK  ADVISORY  WRITE 8124 fe:00:4213 0 EOF"; a waiting one has "->" after its number
    std::istringstream words(line);
    std::string number, kind, advisory, access, file;
    long process = 0;
    if (words >> number >> kind >> advisory >> access >> process >> file && kind == "FLOCK" && file == wanted) return process;
  }
  return 0;
}

}  // namespace

Result<RunLock> RunLock::take(const std::filesystem::path& directory) {
  const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return file_error("open", directory, errno);
  RunLock out(descriptor);
  if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return out;
  const long process = holder_of(descriptor);
  return run_error(directory.string() + " is in use" + (process > 0 ? " by process " + std::to_string(process) : " by another process"),
                   "let it come to its end, or interrupt it: it saves, and the run can be resumed");
}

RunLock::RunLock(RunLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

RunLock::~RunLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace galley
