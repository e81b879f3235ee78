#include "host/session/export_folder.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <random>

#include "host/base/file.hpp"
#include "host/exec/checksum.hpp"
#include "host/exec/folder.hpp"
#include "host/session/run_directory.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// A new folder beside `out`, under a name that nobody can have prepared.
Result<fs::path> make_aside(const fs::path& out) {
  std::random_device random;
  const fs::path aside = out.string() + ".tmp-" + hexadecimal(uint64_t{random()} << 32 | random());
  TRY_STATUS(make_directories(out.parent_path()));
  if (::mkdir(aside.c_str(), 0777) != 0) return file_error("create", aside, errno);
  return aside;
}

Status move_into_place(const fs::path& aside, const fs::path& out) {
  std::error_code error;
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(aside, error)) parts.push_back(entry.path());
  if (error) return file_error("list", aside, error.value());
  for (const fs::path& part : parts) TRY_STATUS(sync_directory(part));
  TRY_STATUS(sync_directory(aside));
  TRY_STATUS(rename_synced(parts.size() == 1 ? parts.front() : aside, out));
  fs::remove_all(aside, error);
  return ok();
}

}  // namespace

Status export_folder(Session& session, const fs::path& given) {
  TRY_STATUS(check_vacant(given));
  std::error_code error;
  const fs::path clean = fs::absolute(given, error).lexically_normal();
  if (error) return run_error("the current directory cannot be found: " + error.message(), "go to one that exists");
  const fs::path out = clean.has_filename() ? clean : clean.parent_path();
  const fs::path aside = TRY(make_aside(out));
  Status written = session.export_model(aside);
  if (written) written = move_into_place(aside, out);
  if (!written) fs::remove_all(aside, error);
  return written;
}

}  // namespace galley
