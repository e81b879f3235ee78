#include "host/data/cache.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPending = size_t{1} << 20;
constexpr time_t kDay = 24 * 3600, kUnused = 30 * kDay, kLeftOver = kDay;  // seconds
constexpr char kMagic[8] = {'g', 'a', 'l', 'l', 'e', 'y', 'C', '1'};

struct Header {
  char magic[8];
  uint64_t checksum;
  uint64_t sizes[kCacheSections];
  uint64_t facts[kCacheFacts];
  uint64_t reserved[10];
};
static_assert(sizeof(Header) == 256);

uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Files that nobody has used for long, and what killed runs left.
void remove_old(const fs::path& directory) {
  const time_t now = std::time(nullptr);
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, error)) {
    struct stat status;
    if (::stat(entry.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    const std::string name = entry.path().filename().string();
    const bool whole = name.ends_with(".tokens") || name.ends_with(".rows"), aside = name.find(".tmp-") != std::string::npos;
    if ((whole && now - status.st_mtime > kUnused) || (aside && now - status.st_mtime > kLeftOver)) ::unlink(entry.path().c_str());
  }
}

Result<uint64_t> checksum_of(const File& file, uint64_t from, uint64_t end) {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  std::vector<std::byte> buffer(kPending);
  Status status;
  for (uint64_t at = from; at < end && status; at += buffer.size()) {
    const auto piece = std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(buffer.size(), end - at)));
    status = file.read_at(piece, at);
    XXH3_64bits_update(state, piece.data(), piece.size());
  }
  const uint64_t digest = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  if (!status) return status.error();
  return digest;
}

}  // namespace

KeyHash::KeyHash() : state_(XXH3_createState()) { XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_)); }
KeyHash::~KeyHash() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }
void KeyHash::part(std::span<const std::byte> bytes) {
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}
void KeyHash::add(uint64_t number) { part(std::as_bytes(std::span(&number, 1))); }
void KeyHash::add(std::string_view text) {
  part(std::as_bytes(std::span(text)));
  add(static_cast<uint64_t>(text.size()));
}
std::string KeyHash::digits() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(static_cast<const XXH3_state_t*>(state_));
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

Result<fs::path> cache_directory() {
  fs::path path;
  if (const char* own = std::getenv("GALLEY_CACHE"); own && *own) path = own;
  else if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) path = fs::path(xdg) / "galley";
  else if (const char* home = std::getenv("HOME"); home && *home) path = fs::path(home) / ".cache" / "galley";
  else if (const passwd* user = ::getpwuid(::getuid()); user && *user->pw_dir) path = fs::path(user->pw_dir) / ".cache" / "galley";
  else return run_error("there is no place for prepared data: HOME is not set", "name a directory: GALLEY_CACHE=DIR");
  std::error_code error;
  fs::create_directories(path, error);
  if (error) {
    return run_error("cannot make the directory for prepared data, '" + path.string() + "': " + error.message(),
                     "name another one: GALLEY_CACHE=DIR");
  }
  return path;
}

Result<std::optional<CacheFile>> CacheFile::open(const std::string& key, const std::string& kind) {
  const fs::path path = TRY(cache_directory()) / (key + "." + kind);
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<CacheFile>();
  CacheFile out(TRY(File::open_read(path)));
  const uint64_t size = TRY(out.file_.size());
  Header header;
  const auto whole = [&]() -> Result<bool> {
    if (size < sizeof header) return false;
    TRY_STATUS(out.file_.read_at(std::as_writable_bytes(std::span(&header, 1)), 0));
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return false;
    uint64_t end = sizeof header;
    for (size_t s = 0; s < kCacheSections; ++s) {
      if (header.sizes[s] > size) return false;
      out.begin_[s] = end;
      end += aligned(header.sizes[s]);
    }
    return end == size && TRY(checksum_of(out.file_, sizeof header, end)) == header.checksum;
  };
  if (!TRY(whole())) {
    fs::remove(path, error);
    return std::optional<CacheFile>();
  }
  std::memcpy(out.facts_.data(), header.facts, sizeof header.facts);
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // it has been used; where that cannot be noted, it may be made again one day
  return std::optional(std::move(out));
}

Result<std::unique_ptr<CacheWriter>> CacheWriter::create(const std::string& key, const std::string& kind) {
  static std::atomic<int> number = 0;
  std::unique_ptr<CacheWriter> out(new CacheWriter);
  const fs::path directory = TRY(cache_directory());
  remove_old(directory);
  out->path_ = directory / (key + "." + kind);
  for (size_t s = 0; s < kCacheSections; ++s) {
    Section& section = out->sections_[s];
    section.path = out->path_.string() + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
    section.file.emplace(TRY(File::create(section.path)));
    if (s > 0) continue;
    const Header empty = {};
    TRY_STATUS(section.file->write(std::as_bytes(std::span(&empty, 1))));
  }
  return out;
}

CacheWriter::~CacheWriter() {
  for (const Section& section : sections_)
    if (section.file) ::unlink(section.path.c_str());
}

Status CacheWriter::flush(Section& section) {
  TRY_STATUS(section.file->write(section.pending));
  section.pending.clear();
  return ok();
}

Status CacheWriter::append(size_t section, std::span<const std::byte> bytes) {
  Section& to = sections_[section];
  to.pending.insert(to.pending.end(), bytes.begin(), bytes.end());
  to.bytes += bytes.size();
  return to.pending.size() < kPending ? ok() : flush(to);
}

Status CacheWriter::finish(const CacheFacts& facts) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(header.facts, facts.data(), sizeof header.facts);
  Section& main = sections_[0];
  std::vector<std::byte> buffer(kPending);
  for (size_t s = 0; s < kCacheSections; ++s) {
    Section& section = sections_[s];
    header.sizes[s] = section.bytes;
    TRY_STATUS(flush(section));
    for (uint64_t at = 0; s > 0 && at < section.bytes; at += buffer.size()) {
      const auto piece = std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(buffer.size(), section.bytes - at)));
      const File part = TRY(File::open_read(section.path));
      TRY_STATUS(part.read_at(piece, at));
      TRY_STATUS(main.file->write(piece));
    }
    const std::vector<std::byte> fill(aligned(section.bytes) - section.bytes);
    TRY_STATUS(main.file->write(fill));
  }
  const File written = TRY(File::open_read(main.path));
  const uint64_t size = TRY(written.size());
  header.checksum = TRY(checksum_of(written, sizeof header, size));
  TRY_STATUS(main.file->write_at(std::as_bytes(std::span(&header, 1)), 0));
  TRY_STATUS(main.file->sync());
  TRY_STATUS(rename_synced(main.path, path_));
  main.file.reset();  // it is there: nothing to remove
  return ok();
}

}  // namespace galley
