#include "host/data/documents.hpp"

#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <span>
#include <utility>

#include "host/base/file.hpp"
#include "host/data/spec.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

bool has_wildcard(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

bool passed_over(const fs::path& directory) {
  const std::string name = directory.filename().string();
  if (name.starts_with('.') || name == "build" || name == "node_modules" || name == "__pycache__") return true;
  std::error_code ignored;
  for (const char* mark : {"CMakeCache.txt", "CACHEDIR.TAG", "run.toml"})
    if (fs::exists(directory / mark, ignored)) return true;
  return false;
}

class Finder {
 public:
  Finder(const DataSpec& spec, FileKind kind) : spec_(spec), kind_(kind) {}

  Status add(const std::string& given) {
    struct stat status;
    if (::stat(given.c_str(), &status) == 0) {
      if (S_ISDIR(status.st_mode) && kind_ != FileKind::Text)
        return data_error(spec_, "'" + given + "' is a directory",
                          "name the files in it: \"" + given + (kind_ == FileKind::Lines ? "/*.jsonl\"" : "/*.bin\""));
      if (S_ISDIR(status.st_mode)) return add_directory(given);
      if (!S_ISREG(status.st_mode)) return data_error(spec_, "'" + given + "' is neither a file nor a directory");
      return add_file(given, fs::path(given).filename().string(), true);
    }
    if (errno != ENOENT || !has_wildcard(given)) return system_error("open", given, errno);
    return add_pattern(given);
  }

  Documents found;

 private:
  Error system_error(const char* verb, const fs::path& path, int error_number) {
    return data_error(spec_, file_error(verb, path, error_number).cause);
  }

  Status add_directory(const fs::path& root) {
    std::vector<fs::path> files;
    TRY_STATUS(walk(root, &files));
    for (const fs::path& file : files) TRY_STATUS(add_file(file, file.lexically_relative(root).generic_string(), false));
    return ok();
  }

  // All regular files below `root`, by path.
  Status walk(const fs::path& root, std::vector<fs::path>* files) {
    std::vector<fs::path> open = {root};
    while (!open.empty()) {
      const fs::path directory = std::move(open.back());
      open.pop_back();
      for (const fs::directory_entry& entry : TRY(list(directory))) {
        std::error_code ignored;
        const fs::file_type type = entry.symlink_status(ignored).type();
        if (type == fs::file_type::directory && !passed_over(entry.path())) open.push_back(entry.path());
        if (type == fs::file_type::regular) files->push_back(entry.path());
      }
    }
    std::sort(files->begin(), files->end(), [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    return ok();
  }

  // The entries of a directory, by name: the order that the file system gives them in is no order.
  Result<std::vector<fs::directory_entry>> list(const fs::path& directory) {
    std::vector<fs::directory_entry> entries;
    std::error_code error;
    fs::directory_iterator at(directory, error);
    for (; !error && at != fs::directory_iterator(); at.increment(error)) entries.push_back(*at);
    if (error) return system_error("list", directory, error.value());
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.path().native() < b.path().native(); });
    return entries;
  }

  Status add_pattern(const fs::path& pattern) {
    fs::path root;
    std::vector<std::string> rest;
    for (const fs::path& part : pattern) {
      if (rest.empty() && !has_wildcard(part.string())) root /= part;
      else rest.push_back(part.string());
    }
    if (rest.back() == "**") rest.push_back("*");
    std::vector<fs::path> files;
    std::error_code ignored;
    if (fs::is_directory(root.empty() ? "." : root, ignored)) TRY_STATUS(match(root.empty() ? "." : root, rest, &files));
    if (files.empty()) return data_error(spec_, "no file matches '" + pattern.string() + "'");
    for (const fs::path& file : files) TRY_STATUS(add_file(file, file.lexically_relative(root).generic_string(), false));
    return ok();
  }

  Status match(const fs::path& directory, std::span<const std::string> parts, std::vector<fs::path>* files) {
    const bool any_depth = parts[0] == "**";
    if (any_depth) TRY_STATUS(match(directory, parts.subspan(1), files));
    for (const fs::directory_entry& entry : TRY(list(directory))) {
      std::error_code ignored;
      if (any_depth) {
        // A link to a directory could lead back above it: ** does not follow links.
        const bool enter = entry.symlink_status(ignored).type() == fs::file_type::directory && !passed_over(entry.path());
        if (enter) TRY_STATUS(match(entry.path(), parts, files));
        continue;
      }
      if (::fnmatch(parts[0].c_str(), entry.path().filename().c_str(), FNM_PERIOD) != 0) continue;
      if (parts.size() > 1 && entry.is_directory(ignored)) TRY_STATUS(match(entry.path(), parts.subspan(1), files));
      if (parts.size() == 1 && entry.is_regular_file(ignored)) files->push_back(entry.path());
    }
    return ok();
  }

  Status add_file(const fs::path& path, std::string identity, bool named) {
    struct stat status;
    if (::stat(path.c_str(), &status) != 0) return system_error("open", path, errno);
    if (!seen_.emplace(status.st_dev, status.st_ino).second) return ok();
    const auto size = static_cast<uint64_t>(status.st_size);
    if (kind_ != FileKind::Text) {
      found.files.push_back({path, std::move(identity), size, named});
      return ok();
    }
    if (size < 2) {
      ++found.small;
      return ok();
    }
    Result<File> file = File::open_read(path);
    if (!file.ok()) return data_error(spec_, file.error().cause);
    std::byte start[8192];
    Result<size_t> read = file->read_some(start, 0);
    if (!read.ok()) return data_error(spec_, read.error().cause);
    if (std::memchr(start, 0, *read) != nullptr) {
      if (named) return data_error(spec_, "'" + path.string() + "' is not a text: it has a NUL in its first bytes");
      ++found.binary;
      return ok();
    }
    found.files.push_back({path, std::move(identity), size, named});
    return ok();
  }

  const DataSpec& spec_;
  FileKind kind_;
  std::set<std::pair<dev_t, ino_t>> seen_;
};

}  // namespace

Result<Documents> find_documents(const DataSpec& spec, const std::vector<std::string>& files, FileKind kind) {
  Finder finder(spec, kind);
  for (const std::string& given : files) TRY_STATUS(finder.add(given));
  return std::move(finder.found);
}

}  // namespace galley
