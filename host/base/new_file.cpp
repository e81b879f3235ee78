#include "host/base/new_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAside = ".tmp-";
constexpr size_t kDigits = 16;      // of a random name
constexpr size_t kLongest = 255;    // name of a file on Linux
constexpr int kLinks = 40;          // that Linux follows
constexpr time_t kDay = 24 * 3600;  // seconds

fs::path folder_of(const fs::path& place) { return place.has_parent_path() ? place.parent_path() : fs::path("."); }

/// What files aside of `place` begin with. A name that would be too long is cut.
std::string stem_of(const fs::path& place) {
  std::string name = place.filename().string();
  const size_t most = kLongest - kAside.size() - kDigits;
  if (name.size() > most) name.resize(most);
  return name;
}

Result<fs::path> random_aside(const fs::path& place) {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != sizeof number) return file_error("find a name beside", place, errno);
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  return folder_of(place) / (stem_of(place) + std::string(kAside) + digits);
}

/// Removes what a killed process has left beside `place`. `type` is S_IFREG or S_IFDIR.
void remove_left_overs(const fs::path& place, mode_t type) {
  const std::string stem = stem_of(place);
  std::error_code error;
  for (fs::directory_iterator at(folder_of(place), error); !error && at != fs::directory_iterator(); at.increment(error)) {
    struct stat status;
    if (place_of(at->path().filename().string()) != stem || ::lstat(at->path().c_str(), &status) != 0) continue;
    if ((status.st_mode & S_IFMT) == type) remove_left_over(at->path(), std::time(nullptr) - status.st_mtime);
  }
}

struct Aside {
  fs::path path;
  File file;  // locked
};

/// A file or folder aside, locked. `make` creates one of a name that is not there yet, and opens it.
Result<Aside> make_aside(const fs::path& place, int (*make)(const char* name)) {
  while (true) {
    fs::path aside = TRY(random_aside(place));
    const int fd = make(aside.c_str());
    if (fd < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (fd < 0) return file_error("create", place, errno);
    File file = File::of_descriptor(fd, place);
    const bool locked = ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    struct stat made, there;
    // Somebody who removes what is left over may have come before the lock.
    if (locked && ::fstat(fd, &made) == 0 && ::lstat(aside.c_str(), &there) == 0 && made.st_ino == there.st_ino)
      return Aside{std::move(aside), std::move(file)};
  }
}

/// The place that links lead to, whether there is a file or not.
Result<fs::path> follow(const fs::path& given) {
  fs::path place = given;
  std::error_code error;
  for (int links = 0; fs::is_symlink(fs::symlink_status(place, error)); ++links) {
    const fs::path next = fs::read_symlink(place, error);
    if (links == kLinks) error = std::make_error_code(std::errc::too_many_symbolic_link_levels);
    if (error) return recipe_error("cannot write '" + given.string() + "': " + error.message(), "name a file that can be written");
    place = folder_of(place) / next;
  }
  return place;
}

/// The descriptor of the standard output or error, if that is the file; -1 otherwise.
int standard_stream(const struct stat& status) {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat stream;
    if (::fstat(descriptor, &stream) == 0 && stream.st_dev == status.st_dev && stream.st_ino == status.st_ino) return descriptor;
  }
  return -1;
}

Result<NewFile> as_recipe_error(Result<NewFile> made) {
  if (made.ok() || !made.error().hint.empty()) return made;  // a hint: the disk is full
  return recipe_error(made.error().cause, "name a file that can be written");
}

}  // namespace

std::optional<std::string_view> place_of(std::string_view name) {
  if (name.size() <= kAside.size() + kDigits) return std::nullopt;
  const std::string_view place = name.substr(0, name.size() - kAside.size() - kDigits), end = name.substr(place.size());
  if (!end.starts_with(kAside) || end.find_first_not_of("0123456789abcdef", kAside.size()) != end.npos) return std::nullopt;
  return place;
}

void remove_left_over(const fs::path& aside, time_t age) {
  const int fd = ::open(aside.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return;
  const bool free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  const bool unknown = !free && errno != EWOULDBLOCK;
  struct stat status;
  // Under the lock: whoever has just made it sees that it is gone.
  if ((free || (unknown && age > kDay)) && ::fstat(fd, &status) == 0) {
    std::error_code error;
    if (S_ISDIR(status.st_mode)) fs::remove_all(aside, error);
    else ::unlink(aside.c_str());
  }
  ::close(fd);
}

Result<NewFile> NewFile::beside(const fs::path& place) {
  remove_left_overs(place, S_IFREG);
  Aside made =
      TRY(make_aside(place, [](const char* name) { return ::open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666); }));
  return NewFile(std::move(made.file), place, std::move(made.path));
}

Result<NewFile> NewFile::named(const fs::path& given) {
  if (given.empty()) return recipe_error("'' names no file");
  struct stat status;
  if (::stat(given.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return recipe_error("cannot write '" + given.string() + "': it is a directory", "name a file");
    // Before links are followed: /dev/stdout leads to what need not have a path.
    const int stream = standard_stream(status);
    if (stream >= 0 || !S_ISREG(status.st_mode)) {
      const int fd = stream >= 0 ? ::fcntl(stream, F_DUPFD_CLOEXEC, 3) : ::open(given.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
      if (fd < 0) return as_recipe_error(file_error("write", given, errno));
      return NewFile(File::of_descriptor(fd, given), given, {});
    }
  }
  if (!given.has_filename()) return recipe_error("cannot write '" + given.string() + "': it names no file");
  return as_recipe_error(beside(TRY(follow(given))));
}

NewFile::NewFile(NewFile&& other) noexcept
    : file_(std::move(other.file_)), place_(std::move(other.place_)), aside_(std::exchange(other.aside_, {})) {}

NewFile::~NewFile() {
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

Status NewFile::finish_at(const fs::path& place) {
  TRY_STATUS(file_.sync());
  if (aside_.empty()) return ok();
  TRY_STATUS(rename_synced(aside_, place));
  aside_.clear();
  return ok();
}

Result<NewFolder> NewFolder::beside(const fs::path& place) {
  remove_left_overs(place, S_IFDIR);
  Aside made = TRY(make_aside(place, [](const char* name) {
    return ::mkdir(name, 0777) != 0 ? -1 : ::open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  }));
  return NewFolder(std::move(made.file), std::move(made.path));
}

NewFolder::NewFolder(NewFolder&& other) noexcept : lock_(std::move(other.lock_)), path_(std::exchange(other.path_, {})) {}

NewFolder::~NewFolder() {
  std::error_code error;
  if (!path_.empty()) fs::remove_all(path_, error);
}

Status write_atomic(const fs::path& place, std::string_view text) {
  NewFile made = TRY(NewFile::beside(place));
  TRY_STATUS(made.file().write(text));
  return made.finish();
}

}  // namespace galley
