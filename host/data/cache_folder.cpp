#include "host/data/cache_folder.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "host/base/file.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr time_t kDay = 24 * 3600, kUnused = 30 * kDay;  // seconds
constexpr size_t kDigits = 32;                           // of a key
constexpr std::string_view kAside = ".tmp-";
constexpr const char* kTag = "CACHEDIR.TAG";
constexpr std::string_view kMark = "Signature: 8a477f597d28d172789f06886806bc55\n# Galley keeps prepared data here";
constexpr std::string_view kTagText =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Galley keeps prepared data here, and removes what it has not used for long.\n"
    "# All of it may be deleted at any time; see https://bford.info/cachedir/\n";

enum class Name { Foreign, Whole, Aside };

/// Whether Galley gives such a name: 32 hexadecimal digits, a kind, and aside ".tmp-<process>-<number>".
Name name_of(std::string_view name) {
  const auto digits = [](std::string_view text, std::string_view allowed) {
    return !text.empty() && text.find_first_not_of(allowed) == std::string_view::npos;
  };
  if (name.size() <= kDigits || !digits(name.substr(0, kDigits), "0123456789abcdef")) return Name::Foreign;
  name.remove_prefix(kDigits);
  for (const std::string_view kind : kCacheKinds) {
    if (!name.starts_with("." + std::string(kind))) continue;
    const std::string_view rest = name.substr(1 + kind.size());
    if (rest.empty()) return Name::Whole;
    if (!rest.starts_with(kAside)) continue;
    const std::string_view numbers = rest.substr(kAside.size());
    const size_t dash = std::min(numbers.find('-'), numbers.size());
    const bool both =
        dash < numbers.size() && digits(numbers.substr(0, dash), "0123456789") && digits(numbers.substr(dash + 1), "0123456789");
    if (both) return Name::Aside;
  }
  return Name::Foreign;
}

/// What CACHEDIR.TAG holds; nullopt: there is none.
std::optional<std::string> tag_in(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder / kTag, error);
  if (!fs::exists(status)) return std::nullopt;
  const Result<std::string> text = fs::is_regular_file(status) ? read_text(folder / kTag, 4096) : Result<std::string>("not a file");
  return text ? *text : "not to be read";
}

bool is_mark(const std::optional<std::string>& tag) { return tag && tag->starts_with(kMark); }

enum class Owner { Galley, Nobody, Others };

/// Whose folder it is: Galley's, if it has the mark; nobody's, if it is not there, is empty, or lacks the mark only.
Owner owner_of(const fs::path& folder) {
  const std::optional<std::string> tag = tag_in(folder);
  if (is_mark(tag)) return Owner::Galley;
  // Another process may be writing the tag.
  if (tag && !kTagText.starts_with(*tag)) return Owner::Others;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  if (error) return error == std::errc::no_such_file_or_directory ? Owner::Nobody : Owner::Others;
  for (; at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name != kTag && name_of(name) == Name::Foreign) return Owner::Others;
  }
  return error ? Owner::Others : Owner::Nobody;
}

/// Makes the folder and marks it. Several processes may do so at once: all write the same.
Status mark(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    return cache_error(run_error("cannot make the folder for prepared data, '" + folder.string() + "': " + error.message()));
  }
  const int fd = ::open((folder / kTag).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (fd < 0) return cache_error(file_error("create", folder / kTag, errno));
  const bool whole = ::pwrite(fd, kTagText.data(), kTagText.size(), 0) == static_cast<ssize_t>(kTagText.size());
  const int error_number = errno;
  ::close(fd);
  return whole ? ok() : cache_error(file_error("write", folder / kTag, error_number));
}

int lock_of(const fs::path& path, int flags) { return ::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, 0666); }

/// Removes the file if nobody writes it any more: if it can be locked, or, where files cannot be locked, after a day.
void remove_left_over(const fs::path& path, time_t age) {
  const int fd = lock_of(path, O_RDONLY);
  if (fd < 0) return;
  const bool free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  const bool unknown = !free && errno != EWOULDBLOCK;
  // Under the lock: whoever has just made the file sees that it is gone.
  if (free || (unknown && age > kDay)) ::unlink(path.c_str());
  ::close(fd);
}

}  // namespace

Error cache_error(Error error) {
  const std::string other = "name another folder for prepared data: GALLEY_CACHE=DIR";
  error.hint = error.hint.starts_with("free some space") ? "free some space there, or " + other : other;
  return error;
}

Result<fs::path> cache_folder() {
  fs::path path;
  if (const char* own = std::getenv("GALLEY_CACHE"); own && *own) path = own;
  else if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) path = fs::path(xdg) / "galley";
  else if (const char* home = std::getenv("HOME"); home && *home) path = fs::path(home) / ".cache" / "galley";
  else if (const passwd* user = ::getpwuid(::getuid()); user && *user->pw_dir) path = fs::path(user->pw_dir) / ".cache" / "galley";
  else return cache_error(run_error("there is no place for prepared data: HOME is not set"));
  Owner owner = owner_of(path);
  if (owner == Owner::Others) {
    std::error_code error;
    if (!fs::is_directory(path, error))
      return cache_error(run_error("cannot keep prepared data in '" + path.string() + "': it is no folder that can be read"));
    path /= "galley";
    owner = owner_of(path);
  }
  if (owner == Owner::Others) {
    return cache_error(run_error("cannot keep prepared data in '" + path.string() +
                                 "': there are other things in it, and Galley removes old files from its cache"));
  }
  if (owner == Owner::Galley) return path;
  const Status marked = mark(path);
  std::error_code error;
  if (!marked && !fs::is_directory(path, error)) return marked.error();
  return path;
}

void clean_cache(const fs::path& folder, time_t now) {
  const fs::path tag = folder / kTag;
  struct stat status;
  if (!is_mark(tag_in(folder)) || ::stat(tag.c_str(), &status) != 0) return;
  const auto set_time = [](const fs::path& path, time_t time) {
    const timespec times[2] = {{time, 0}, {time, 0}};
    ::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW);
  };
  const time_t time = std::min(now, status.st_mtime + kDay);
  set_time(tag, time);
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    const fs::path& path = at->path();
    const Name name = name_of(path.filename().string());
    if (name == Name::Foreign || ::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const time_t age = time - status.st_mtime;
    if (name == Name::Aside) remove_left_over(path, age);
    else if (age > kUnused) ::unlink(path.c_str());
    else if (status.st_mtime > now + kDay) set_time(path, now);
  }
}

Result<CacheAside> CacheAside::create(const fs::path& place) {
  static std::atomic<int> number = 0;
  while (true) {
    fs::path path = place;
    path += std::string(kAside) + std::to_string(::getpid()) + "-" + std::to_string(number++);
    const int lock = lock_of(path, O_RDWR | O_CREAT | O_EXCL);
    // A process with this number may have been killed, or may live in another container.
    if (lock < 0 && errno == EEXIST) continue;
    if (lock < 0) return cache_error(file_error("create", path, errno));
    const bool locked = ::flock(lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    struct stat status;
    // Somebody who cleans may have come before the lock.
    if (locked && ::fstat(lock, &status) == 0 && status.st_nlink > 0) return CacheAside(place, std::move(path), lock);
    ::close(lock);
  }
}

CacheAside::CacheAside(CacheAside&& other) noexcept
    : place_(std::move(other.place_)), path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}

CacheAside::~CacheAside() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (lock_ >= 0) ::close(lock_);
}

Status CacheAside::put() {
  const Status status = rename_synced(path_, place_);
  if (!status) return cache_error(status.error());
  path_.clear();
  return ok();
}

}  // namespace galley
