#include "host/session/mark.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "host/base/file.hpp"
#include "host/base/siphash.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBegin = "mark = \"", kEnd = "\"\n";
constexpr const char* kHint = "name another folder for the key by which your runs are told from others': XDG_STATE_HOME=DIR";

/// "": there is none.
fs::path state_folder() {
  if (const char* xdg = std::getenv("XDG_STATE_HOME"); xdg && *xdg) return fs::path(xdg) / "galley";
  if (const char* home = std::getenv("HOME"); home && *home) return fs::path(home) / ".local" / "state" / "galley";
  if (const passwd* user = ::getpwuid(::getuid()); user && *user->pw_dir) return fs::path(user->pw_dir) / ".local" / "state" / "galley";
  return {};
}

/// nullopt: it is not whole, as it is while another process makes it.
std::optional<SipKey> read_key(int fd) {
  SipKey key;
  if (::pread(fd, key.data(), sizeof key, 0) != sizeof key) return std::nullopt;
  return key;
}

Result<SipKey> key_to_mark_with() {
  const fs::path folder = state_folder(), place = folder / "key";
  if (folder.empty()) return run_error("there is no place for a key: HOME is not set", kHint);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return run_error("cannot make the folder '" + folder.string() + "': " + error.message(), kHint);
  const int fd = ::open(place.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return run_error(file_error("open", place, errno).cause, kHint);
  File file = File::of_descriptor(fd, place);
  ::flock(fd, LOCK_EX);  // several processes may need it for the first time
  if (const auto key = read_key(fd)) return *key;
  SipKey key;
  if (::getrandom(key.data(), sizeof key, 0) != sizeof key) return file_error("find random bits for", place, errno);
  TRY_STATUS(file.write_at(std::as_bytes(std::span(key)), 0));
  TRY_STATUS(file.sync());
  return key;
}

std::optional<SipKey> known_key() {
  const fs::path folder = state_folder();
  const int fd = folder.empty() ? -1 : ::open((folder / "key").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  const File file = File::of_descriptor(fd, "key");
  return read_key(fd);
}

std::string line_of(const SipKey& key, std::string_view text) {
  const auto [first, second] = siphash(key, text);
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(first), static_cast<unsigned long long>(second));
  return std::string(kBegin) + digits + std::string(kEnd);
}

}  // namespace

Result<std::string> with_mark(const std::string& text) { return line_of(TRY(key_to_mark_with()), text) + text; }

bool has_mark(std::string_view text) {
  const std::optional<SipKey> key = known_key();
  const size_t end = text.find('\n');
  if (!key || end == text.npos) return false;
  return text.substr(0, end + 1) == line_of(*key, text.substr(end + 1));
}

}  // namespace galley
