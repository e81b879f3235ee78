#include "host/exec/folder.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "host/base/file.hpp"

namespace galley {

Result<std::filesystem::path> absolute_folder(const std::filesystem::path& given) {
  std::error_code error;
  const std::filesystem::path clean = std::filesystem::absolute(given, error).lexically_normal();
  if (error) return run_error("the current directory cannot be found: " + error.message(), "go to one that exists");
  return clean.has_filename() ? clean : clean.parent_path();
}

Status make_directories(const std::filesystem::path& path) {
  std::error_code error;
  if (path.empty() || std::filesystem::is_directory(path, error)) return ok();
  const std::filesystem::path parent = path.parent_path();
  TRY_STATUS(make_directories(parent));
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) return file_error("create", path, errno);
  return sync_directory(parent.empty() ? std::filesystem::path(".") : parent);
}

}  // namespace galley
