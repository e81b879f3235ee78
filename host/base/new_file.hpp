// Makes files and folders that appear whole: they are written aside, synced, and renamed into their place.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string_view>

#include "host/base/file.hpp"
#include "host/base/result.hpp"

namespace galley {

/// A file on its way to its place. Until finish(), what was there stays as it is; if this is destroyed before, it stays so for good.
///
/// What is written lies beside the place, under its name and ".tmp-" with 16 random hexadecimal digits. It is made anew, never found: a
/// file or link of another program cannot be written through it. It is locked as long as this lives. What a killed program left beside a
/// place is removed when the place is written again.
class NewFile {
 public:
  /// Makes a file that Galley names, in a folder of its own.
  static Result<NewFile> beside(const std::filesystem::path& place);
  /// Makes a file that a person names. Follows a link. A device, a named pipe, and the file that is the standard output or error are
  /// written in place, because replacing them would take them from others. Exit code Recipe if it cannot be written.
  static Result<NewFile> named(const std::filesystem::path& place);

  NewFile(NewFile&& other) noexcept;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();

  /// Returns the file, open for reading and writing (in place: for writing only). Its path(), which errors show, is that of the place.
  File& file() { return file_; }
  /// Syncs what was written, renames it to its place and syncs the folder.
  Status finish() { return finish_at(place_); }
  /// Does the same for another place on the same file system; what is written in place stays there.
  Status finish_at(const std::filesystem::path& place);

 private:
  NewFile(File file, std::filesystem::path place, std::filesystem::path aside)
      : file_(std::move(file)), place_(std::move(place)), aside_(std::move(aside)) {}

  File file_;
  std::filesystem::path place_, aside_;  // no aside: written in place, or at its place already
};

/// A folder beside its place, under a name as that of a NewFile and locked like it. It is removed with all that is in it when this is
/// destroyed: what is to stay is renamed to its place before, the folder itself or what lies in it. What a killed program left beside a
/// place is removed when one is made there again.
class NewFolder {
 public:
  static Result<NewFolder> beside(const std::filesystem::path& place);
  NewFolder(NewFolder&& other) noexcept;
  NewFolder& operator=(NewFolder&&) = delete;
  ~NewFolder();

  const std::filesystem::path& path() const { return path_; }

 private:
  NewFolder(File lock, std::filesystem::path path) : lock_(std::move(lock)), path_(std::move(path)) {}

  File lock_;
  std::filesystem::path path_;
};

/// Writes a NewFile beside `place`: afterwards the file is the old one or the new one, whatever happens.
Status write_atomic(const std::filesystem::path& place, std::string_view text);

/// Returns the name of the place, if `name` is that of a file or folder aside.
std::optional<std::string_view> place_of(std::string_view name);

/// Removes a file or folder aside if no program writes it any more: if it can be locked, or, where files cannot be locked, if its age is
/// more than a day. Errors are ignored.
void remove_left_over(const std::filesystem::path& aside, time_t age);

}  // namespace galley
