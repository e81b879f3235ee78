// Files: descriptors with an owner, and reading whole small files. new_file.hpp writes files so that nothing is ever half there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "host/base/result.hpp"

namespace galley {

/// Makes the error "cannot <verb> '<path>': <text of errno>", exit code Failed; a full disk gets a hint.
Error file_error(std::string_view verb, const std::filesystem::path& path, int error_number);

/// An open file descriptor, closed with its owner. Every operation retries EINTR and short transfers, and reports the path and errno's
/// text. Nothing is buffered here: give write() large pieces. One thread at a time, except where said.
class File {
 public:
  /// Opens a regular file: a directory, a named pipe (opening one could wait forever), a socket or a device is an error. So is a file that
  /// no Confinement allows, if there is any: the place of the opened file decides, not its name.
  static Result<File> open_read(const std::filesystem::path& path);
  /// Creates or truncates a file. The path must not be a link, which could lead anywhere.
  static Result<File> create(const std::filesystem::path& path);
  /// Opens a regular file that is there, for write_at. The path must not be a link.
  static Result<File> open_write(const std::filesystem::path& path);
  /// Creates a file if it is absent; writes go to the end (write_at too: that is how Linux treats O_APPEND). It must be regular, and no
  /// link.
  static Result<File> open_append(const std::filesystem::path& path);
  /// Takes an open descriptor; errors will name `path`.
  static File of_descriptor(int fd, std::filesystem::path path) { return {fd, std::move(path)}; }
  /// Returns the same open file for another owner; both share one position.
  Result<File> duplicate() const;

  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  Result<uint64_t> size() const;
  /// Returns whether the file has no name any more: it is gone when nobody has it open.
  Result<bool> is_deleted() const;
  /// Reads exactly bytes.size() bytes at `offset`; a file that ends before is an error that says so. [thread-safe]
  Status read_at(std::span<std::byte> bytes, uint64_t offset) const;
  /// Reads up to bytes.size() bytes at `offset` and says how many; fewer only where the file ends. [thread-safe]
  Result<size_t> read_some(std::span<std::byte> bytes, uint64_t offset) const;
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  Status write_at(std::span<const std::byte> bytes, uint64_t offset);
  Status truncate(uint64_t size);
  /// Syncs the file. Does nothing for what cannot be synced, such as a pipe.
  Status sync();
  const std::filesystem::path& path() const { return path_; }
  /// Returns the path of the open file, without links.
  Result<std::filesystem::path> real_path() const;
  /// Returns the descriptor, for a process that shall write to it. It stays this object's.
  int descriptor() const { return fd_; }

 private:
  File(int fd, std::filesystem::path path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::filesystem::path path_;
};

/// Reads a whole file as text; more than `limit` bytes is an error (this is for configurations, manifests and recipes). Reads to the end
/// whatever size the file claims, so that /proc and /sys can be read as well.
Result<std::string> read_text(const std::filesystem::path& path, uint64_t limit = 64u << 20);
Result<std::string> read_text(const File& file, uint64_t limit = 64u << 20);

/// Syncs a directory, so that a rename or a creation in it survives.
Status sync_directory(const std::filesystem::path& path);

/// Renames a file or directory whose contents are already synced, then syncs the directory that holds it.
Status rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace galley
