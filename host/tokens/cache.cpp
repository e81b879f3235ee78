#include "host/tokens/cache.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>

namespace galley {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPending = size_t{1} << 20;
constexpr char kMagic[8] = {'g', 'a', 'l', 'l', 'e', 'y', 'C', '1'};

struct Header {
  char magic[8];
  uint64_t checksum;
  uint64_t sizes[kCacheSections];
  uint64_t facts[kCacheFacts];
  uint64_t reserved[2];
};
static_assert(sizeof(Header) == 256);

uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

XXH3_state_t* new_state() {
  XXH3_state_t* state = XXH3_createState();
  if (!state) throw std::bad_alloc();
  return state;
}

Result<uint64_t> checksum_of(const File& file, uint64_t from, uint64_t end) {
  std::vector<std::byte> buffer(kPending);
  XXH3_state_t* state = new_state();
  XXH3_64bits_reset(state);
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

KeyHash::KeyHash() : state_(new_state()) { XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_)); }
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

Result<std::optional<CacheFile>> CacheFile::open(const std::string& key, const std::string& kind) {
  const fs::path path = TRY(cache_folder()) / (key + "." + kind);
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<CacheFile>();
  Result<File> file = File::open_read(path);
  if (!file && !fs::exists(path, error)) return std::optional<CacheFile>();  // somebody has just removed it
  CacheFile out(TRY(std::move(file)));
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
  for (int tries = 0;; ++tries) {
    const fs::path folder = TRY(cache_folder());
    clean_cache(folder, std::time(nullptr));
    std::unique_ptr<CacheWriter> out(new CacheWriter);
    const Status opened = out->open(folder / (key + "." + kind));
    if (opened) return out;
    // Somebody may have deleted the folder since it was made.
    std::error_code error;
    if (tries == 10 || fs::exists(folder, error)) return cache_error(opened.error());
  }
}

Status CacheWriter::open(const fs::path& place) {
  for (size_t s = 0; s < kCacheSections; ++s) {
    NewFile made = TRY(NewFile::beside(place));
    sections_[s].file.emplace(TRY(made.file().duplicate()));
    if (s > 0) continue;
    made_.emplace(std::move(made));
    const Header empty = {};
    TRY_STATUS(sections_[0].file->write(std::as_bytes(std::span(&empty, 1))));
  }
  return ok();
}

Status CacheWriter::flush(Section& section) {
  const Status written = section.file->write(section.pending);
  section.pending.clear();
  return written ? ok() : cache_error(written.error());
}

Status CacheWriter::append(size_t section, std::span<const std::byte> bytes) {
  Section& to = sections_[section];
  to.pending.insert(to.pending.end(), bytes.begin(), bytes.end());
  to.bytes += bytes.size();
  return to.pending.size() < kPending ? ok() : flush(to);
}

Result<CacheFile> CacheWriter::finish(const CacheFacts& facts) {
  for (Section& section : sections_) TRY_STATUS(flush(section));
  if (Status written = assemble(facts); !written) return cache_error(written.error());
  CacheFile out(TRY(sections_[0].file->duplicate()));
  out.facts_ = facts;
  uint64_t end = sizeof(Header);
  for (size_t s = 0; s < kCacheSections; ++s) {
    out.begin_[s] = end;
    end += aligned(sections_[s].bytes);
  }
  if (const Status placed = made_->finish(); !placed && !TRY(out.file_.is_deleted())) return cache_error(placed.error());
  return out;
}

Status CacheWriter::assemble(const CacheFacts& facts) {
  Header header = {};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(header.facts, facts.data(), sizeof header.facts);
  File& main = *sections_[0].file;
  std::vector<std::byte> buffer(kPending);
  for (size_t s = 0; s < kCacheSections; ++s) {
    const Section& section = sections_[s];
    header.sizes[s] = section.bytes;
    for (uint64_t at = 0; s > 0 && at < section.bytes; at += buffer.size()) {
      const auto piece = std::span(buffer).first(static_cast<size_t>(std::min<uint64_t>(buffer.size(), section.bytes - at)));
      TRY_STATUS(section.file->read_at(piece, at));
      TRY_STATUS(main.write(piece));
    }
    const std::vector<std::byte> fill(aligned(section.bytes) - section.bytes);
    TRY_STATUS(main.write(fill));
  }
  header.checksum = TRY(checksum_of(main, sizeof header, TRY(main.size())));
  return main.write_at(std::as_bytes(std::span(&header, 1)), 0);
}

}  // namespace galley
