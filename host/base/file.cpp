#include "host/base/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "host/base/confinement.hpp"

namespace galley {
namespace {

// One transfer of Linux moves at most 0x7ffff000 bytes; a round number below it keeps pieces aligned.
constexpr size_t kTransfer = size_t{1} << 30;

template <class Call>
auto retried(Call call) {
  decltype(call()) result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

std::filesystem::path directory_of(const std::filesystem::path& path) {
  const std::filesystem::path parent = path.parent_path();
  return parent.empty() ? std::filesystem::path(".") : parent;
}

Result<int> open_descriptor(const char* verb, const std::filesystem::path& path, int flags) {
  const int fd = retried([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); });
  if (fd < 0) return file_error(verb, path, errno);
  return fd;
}

/// What a path names that is no file of bytes; null for a regular file.
const char* other_than_file(mode_t mode) {
  if (S_ISREG(mode)) return nullptr;
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

/// A regular file, or an error that says what it is instead. `status` is of what the path names.
Status check_regular(const char* verb, const std::filesystem::path& path, const struct stat& status) {
  const char* other = other_than_file(status.st_mode);
  if (!other) return ok();
  const bool read = std::string_view(verb) == "open";
  return run_error("cannot " + std::string(verb) + " '" + path.string() + "': it is " + other,
                   read ? "only regular files can be read; give the path of one" : "it is to be a file: take away what is there");
}

/// For writing what Galley has named itself. O_NONBLOCK, since a named pipe would wait for a reader.
Result<File> open_own(const char* verb, const std::filesystem::path& path, int flags) {
  const int fd = retried([&] { return ::open(path.c_str(), flags | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0666); });
  if (fd < 0 && errno == ELOOP)
    return run_error("cannot " + std::string(verb) + " '" + path.string() + "': it is a link", "it is to be a file: take away the link");
  struct stat status;
  if (fd < 0 && errno == ENXIO && ::lstat(path.c_str(), &status) == 0) return check_regular(verb, path, status).error();
  if (fd < 0) return file_error(verb, path, errno);
  File file = File::of_descriptor(fd, path);
  if (::fstat(fd, &status) != 0) return file_error(verb, path, errno);
  if (!S_ISCHR(status.st_mode)) TRY_STATUS(check_regular(verb, path, status));  // only root makes a device
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  return file;
}

std::filesystem::path by_descriptor(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

/// Where an open file lies.
Result<std::filesystem::path> real_place(int fd, const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path real = std::filesystem::read_symlink(by_descriptor(fd), error);
  if (error) return run_error("cannot tell where '" + path.string() + "' lies: " + error.message(), "this needs /proc");
  return real;
}

/// Found first and judged, and only then opened: so no link that is changed meanwhile leads elsewhere, and no named pipe waits.
Result<File> open_confined(const std::filesystem::path& path) {
  const File found = File::of_descriptor(TRY(open_descriptor("open", path, O_PATH)), path);
  struct stat status;
  if (::fstat(found.descriptor(), &status) != 0) return file_error("open", path, errno);
  TRY_STATUS(check_regular("open", path, status));
  if (status.st_nlink == 0) return file_error("open", path, ENOENT);  // it has been removed, and lies nowhere
  TRY_STATUS(Confinement::check_real(TRY(found.real_path()), path.string()));
  const int fd = retried([&] { return ::open(by_descriptor(found.descriptor()).c_str(), O_RDONLY | O_CLOEXEC); });
  if (fd < 0) return file_error("open", path, errno);
  return File::of_descriptor(fd, path);
}

}  // namespace

Error file_error(std::string_view verb, const std::filesystem::path& path, int error_number) {
  std::string cause = "cannot " + std::string(verb) + " '" + path.string() + "': " + std::generic_category().message(error_number);
  const bool full = error_number == ENOSPC || error_number == EDQUOT;
  return run_error(std::move(cause), full ? "free some space there, or write to another disk" : "");
}

Result<File> File::open_read(const std::filesystem::path& path) {
  if (Confinement::any()) return open_confined(path);
  struct stat status;
  // Asked before it is opened: opening a named pipe waits for a writer, who may never come. O_NONBLOCK is no way around that, because it
  // makes regular files fail while an NFS server calls back the lease of another client.
  if (::stat(path.c_str(), &status) != 0) return file_error("open", path, errno);
  TRY_STATUS(check_regular("open", path, status));
  return File(TRY(open_descriptor("open", path, O_RDONLY)), path);
}

Result<File> File::create(const std::filesystem::path& path) { return open_own("create", path, O_RDWR | O_TRUNC); }

Result<File> File::open_write(const std::filesystem::path& path) { return open_own("write", path, O_WRONLY); }

Result<File> File::open_append(const std::filesystem::path& path) { return open_own("write", path, O_WRONLY | O_APPEND); }

Result<File> File::duplicate() const {
  const int fd = ::fcntl(fd_, F_DUPFD_CLOEXEC, 3);
  if (fd < 0) return file_error("open", path_, errno);
  return of_descriptor(fd, path_);
}

File::File(File&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::filesystem::path> File::real_path() const { return real_place(fd_, path_); }

Result<bool> File::is_deleted() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) return file_error("look at", path_, errno);
  return status.st_nlink == 0;
}

Result<uint64_t> File::size() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) return file_error("inspect", path_, errno);
  return static_cast<uint64_t>(status.st_size);
}

Result<size_t> File::read_some(std::span<std::byte> bytes, uint64_t offset) const {
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t wanted = std::min(bytes.size() - done, kTransfer);
    const ssize_t got = retried([&] { return ::pread(fd_, bytes.data() + done, wanted, static_cast<off_t>(offset + done)); });
    if (got < 0) return file_error("read", path_, errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

Status File::read_at(std::span<std::byte> bytes, uint64_t offset) const {
  const size_t done = TRY(read_some(bytes, offset));
  if (done == bytes.size()) return ok();
  return run_error("cannot read '" + path_.string() + "': the file ends at byte " + std::to_string(offset + done) + ", " +
                   std::to_string(bytes.size() - done) + " bytes before the end of what was to be read");
}

Status File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = retried([&] { return ::write(fd_, bytes.data(), std::min(bytes.size(), kTransfer)); });
    if (put < 0) return file_error("write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return ok();
}

Status File::write(std::string_view text) { return write(std::as_bytes(std::span(text.data(), text.size()))); }

Status File::write_at(std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const size_t wanted = std::min(bytes.size(), kTransfer);
    const ssize_t put = retried([&] { return ::pwrite(fd_, bytes.data(), wanted, static_cast<off_t>(offset)); });
    if (put < 0) return file_error("write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return ok();
}

Status File::truncate(uint64_t size) {
  if (retried([&] { return ::ftruncate(fd_, static_cast<off_t>(size)); }) != 0) return file_error("truncate", path_, errno);
  return ok();
}

Status File::sync() {
  if (retried([&] { return ::fsync(fd_); }) != 0 && errno != EINVAL) return file_error("sync", path_, errno);
  return ok();
}

Result<std::string> read_text(const std::filesystem::path& path, uint64_t limit) { return read_text(TRY(File::open_read(path)), limit); }

Result<std::string> read_text(const File& file, uint64_t limit) {
  const uint64_t size = TRY(file.size());
  std::string text;
  size_t done = 0;
  do {  // one byte more than the claimed size, so that a file that is what it says needs one round
    text.resize(std::max<uint64_t>(2 * done, std::min(size, limit) + 1));
    done += TRY(file.read_some(std::as_writable_bytes(std::span(text)).subspan(done), done));
    if (done > limit) {
      return run_error("cannot read '" + file.path().string() + "': it has more than the " + std::to_string(limit) +
                       " bytes that such a file may have");
    }
  } while (done == text.size());
  text.resize(done);
  return text;
}

Status sync_directory(const std::filesystem::path& path) {
  const int fd = TRY(open_descriptor("open", path, O_RDONLY | O_DIRECTORY));
  const int failed = retried([&] { return ::fsync(fd); }) != 0 ? errno : 0;
  ::close(fd);
  if (failed != 0) return file_error("sync", path, failed);
  return ok();
}

Status rename_synced(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    return file_error("rename '" + from.string() + "' to", to, errno);
  }
  TRY_STATUS(sync_directory(directory_of(to)));
  // A move out of another directory is complete only when the old name is gone for good.
  if (directory_of(from) != directory_of(to)) TRY_STATUS(sync_directory(directory_of(from)));
  return ok();
}

}  // namespace galley
