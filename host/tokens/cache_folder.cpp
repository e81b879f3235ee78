#include "host/tokens/cache_folder.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "host/base/confinement.hpp"
#include "host/base/new_file.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr time_t kDay = 86'400, kUnused = 30 * kDay;  // seconds
constexpr size_t kDigits = 32;                        // of a key
constexpr const char* kTag = "CACHEDIR.TAG";
constexpr std::string_view kMark = "Signature: 8a477f597d28d172789f06886806bc55\n# Galley keeps prepared data here";
constexpr std::string_view kTagText =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Galley keeps prepared data here, and removes what it has not used for long.\n"
    "# All of it may be deleted at any time; see https://bford.info/cachedir/\n";

enum class Name { Foreign, Whole, Aside };

/// Whether Galley gives such a name: 32 hexadecimal digits and a kind, or that of a file on its way there.
Name name_of(std::string_view name) {
  const std::optional<std::string_view> place = place_of(name);
  const std::string_view whole = place.value_or(name);
  if (whole.size() <= kDigits || whole.find_first_not_of("0123456789abcdef") != kDigits) return Name::Foreign;
  for (const std::string_view kind : kCacheKinds)
    if (whole.substr(kDigits) == "." + std::string(kind)) return place ? Name::Aside : Name::Whole;
  return Name::Foreign;
}

/// What CACHEDIR.TAG holds; nullopt: there is none.
std::optional<std::string> tag_in(const fs::path& folder) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(folder / kTag, error);
  if (!fs::exists(status)) return std::nullopt;
  Confinement::lend(folder / kTag);
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

}  // namespace

Error cache_error(Error error) {
  const std::string other = "name another folder for prepared data: GALLEY_CACHE=DIR";
  error.hint = error.hint.starts_with("free some space") ? "free some space there, or " + other : other;
  return error;
}

namespace {

Result<fs::path> find_folder() {
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

}  // namespace

Result<fs::path> cache_folder() {
  fs::path path = TRY(find_folder());
  Confinement::lend(path);
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

}  // namespace galley
