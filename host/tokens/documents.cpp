#include "host/tokens/documents.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <tuple>
#include <utility>

#include "host/base/confinement.hpp"
#include "host/base/file.hpp"
#include "host/base/glob.hpp"
#include "host/tokens/spec.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

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
    const int why = errno;
    if (why != ENOENT || before_wildcards(given) == fs::path(given)) return system_error("open", given, why);
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

  // Finds all regular files below `root`, by path.
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

  // Walks each directory below the pattern's beginning once, with all the places in the pattern that it has come to: `**` stands for any
  // number of directories, so that trying each number for each `**` takes time exponential in their number.
  Status add_pattern(const fs::path& pattern) {
    const fs::path root = before_wildcards(pattern);
    std::vector<std::string> parts;
    for (auto part = std::next(pattern.begin(), std::distance(root.begin(), root.end())); part != pattern.end(); ++part)
      parts.push_back(part->string());
    if (parts.back() == "**") parts.push_back("*");
    std::vector<fs::path> files;
    std::set<Visit> visited;
    std::error_code ignored;
    if (fs::is_directory(root.empty() ? "." : root, ignored))
      TRY_STATUS(match(root.empty() ? "." : root, parts, reached(parts, {0}), &visited, &files));
    if (files.empty()) return data_error(spec_, "no file matches '" + pattern.string() + "'");
    for (const fs::path& file : files) TRY_STATUS(add_file(file, file.lexically_relative(root).generic_string(), false));
    return ok();
  }

  using Places = std::set<size_t>;                 // in the pattern's parts
  using Visit = std::tuple<dev_t, ino_t, size_t>;  // of a directory, at a place

  // `**` may stand for no directory: whoever comes to it comes to what follows it as well.
  static Places reached(const std::vector<std::string>& parts, Places places) {
    for (const size_t at : Places(places))
      for (size_t next = at; next + 1 < parts.size() && parts[next] == "**";) places.insert(++next);
    return places;
  }

  // A pattern finds a name that begins with a dot only if it says the dot.
  static bool names(const std::string& part, const std::string& name) {
    return (!name.starts_with('.') || part.starts_with('.')) && glob_matches(part, name);
  }

  Status match(const fs::path& directory, const std::vector<std::string>& parts, Places places, std::set<Visit>* visited,
               std::vector<fs::path>* files) {
    struct stat status;
    if (::stat(directory.c_str(), &status) != 0) return system_error("open", directory, errno);
    TRY_STATUS(check_reach(directory));
    std::erase_if(places, [&](size_t at) { return !visited->emplace(status.st_dev, status.st_ino, at).second; });
    if (places.empty()) return ok();
    std::vector<std::pair<fs::path, Places>> below;
    for (const fs::directory_entry& entry : TRY(list(directory))) {
      std::error_code ignored;
      const std::string name = entry.path().filename().string();
      const bool is_directory = entry.is_directory(ignored);
      // A link to a directory could lead back above it: ** does not follow links.
      const bool any_depth = is_directory && !entry.is_symlink(ignored) && !passed_over(entry.path());
      Places next;
      bool matches = false;
      for (const size_t at : places) {
        if (parts[at] == "**") {
          if (any_depth) next.insert(at);
        } else if (names(parts[at], name)) {
          if (at + 1 < parts.size()) next.insert(at + 1);
          else matches = true;
        }
      }
      if (matches && entry.is_regular_file(ignored)) files->push_back(entry.path());
      if (is_directory && !next.empty()) below.emplace_back(entry.path(), reached(parts, std::move(next)));
    }
    for (auto& [path, next] : below) TRY_STATUS(match(path, parts, std::move(next), visited, files));
    return ok();
  }

  Status add_file(const fs::path& path, std::string identity, bool named) {
    struct stat status;
    if (::stat(path.c_str(), &status) != 0) return system_error("open", path, errno);
    TRY_STATUS(check_reach(path));
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
    if (!file.ok()) return data_error(spec_, file.error().cause, file.error().hint);
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

  // Of a confined recipe: whether the file or directory, with links followed, lies where it may read. Asked here as well as where files
  // are opened, since what lies in the cache is not opened again.
  Status check_reach(const fs::path& path) const {
    const Status inside = Confinement::check(path);
    return inside ? ok() : data_error(spec_, inside.error().cause, inside.error().hint);
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
