// Caches what a first pass over the data makes, tokens and how they are packed, in files. A file's name is the hash of everything that it
// was made from, so that the same data is prepared once, by whichever run comes first. Every file may be deleted at any time.
// cache_folder.hpp says where the files lie and which of them are removed.
//
// A file: a header of 256 bytes (Header), then up to four sections, each an array. The checksum is of everything after the header. Files
// are written aside and renamed, so that two runs that make the same one do not meet.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/base/new_file.hpp"
#include "host/base/result.hpp"
#include "host/tokens/cache_folder.hpp"

namespace galley {

/// Hashes what is added to it, each piece with its length: XXH3, 128 bits.
class KeyHash {
 public:
  KeyHash();
  ~KeyHash();
  KeyHash(const KeyHash&) = delete;
  KeyHash& operator=(const KeyHash&) = delete;
  void add(std::string_view text);
  void add(uint64_t number);
  /// Adds bytes of one piece that comes in parts; add their number after them.
  void part(std::span<const std::byte> bytes);
  /// Returns 32 hexadecimal digits.
  std::string digits() const;

 private:
  void* state_;
};

inline constexpr size_t kCacheSections = 4;
inline constexpr size_t kCacheFacts = 24;
using CacheFacts = std::array<uint64_t, kCacheFacts>;

/// Reads a file that was found whole. Movable; reading is [thread-safe] and allocates nothing.
class CacheFile {
 public:
  /// Opens a file and reads all of it once. Returns nullopt if it is not there or not whole; a broken file is removed, to be made again.
  static Result<std::optional<CacheFile>> open(const std::string& key, const std::string& kind);

  uint64_t fact(size_t index) const { return facts_[index]; }
  /// Reads bytes [offset, …) of a section, which must be there.
  Status read(size_t section, uint64_t offset, std::span<std::byte> out) const { return file_.read_at(out, begin_[section] + offset); }
  template <class T>
  Status read(size_t section, uint64_t first, std::span<T> out) const {
    return read(section, first * sizeof(T), std::as_writable_bytes(out));
  }

 private:
  friend class CacheWriter;
  explicit CacheFile(File file) : file_(std::move(file)) {}
  File file_;
  CacheFacts facts_ = {};
  std::array<uint64_t, kCacheSections> begin_ = {};
};

/// Writes a file aside. If it is destroyed before finish(), it leaves nothing; the next writer removes what a killed process has left.
class CacheWriter {
 public:
  /// `kind` is one of kCacheKinds.
  static Result<std::unique_ptr<CacheWriter>> create(const std::string& key, const std::string& kind);
  CacheWriter(const CacheWriter&) = delete;
  CacheWriter& operator=(const CacheWriter&) = delete;

  /// Appends to a section; the sections may grow in any order.
  Status append(size_t section, std::span<const std::byte> bytes);
  template <class T>
  Status append(size_t section, std::span<const T> items) {
    return append(section, std::as_bytes(items));
  }
  /// Joins the sections, puts the file in its place, and opens it. If somebody has deleted it meanwhile, and the folder perhaps, only this
  /// process has it.
  Result<CacheFile> finish(const CacheFacts& facts);

 private:
  struct Section {
    std::optional<File> file;  // the first lies in the file itself, the others in files without a name
    std::vector<std::byte> pending;
    uint64_t bytes = 0;
  };
  CacheWriter() = default;
  Status open(const std::filesystem::path& place);
  Status flush(Section& section);
  Status assemble(const CacheFacts& facts);

  std::optional<NewFile> made_;
  std::array<Section, kCacheSections> sections_;
};

}  // namespace galley
