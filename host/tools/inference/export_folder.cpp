#include "host/tools/inference/export_folder.hpp"

#include <vector>

#include "host/base/confinement.hpp"
#include "host/base/file.hpp"
#include "host/base/new_file.hpp"
#include "host/exec/folder.hpp"
#include "host/session/run_directory.hpp"
#include "host/tools/inference/shards.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

Status move_into_place(const fs::path& aside, const fs::path& out) {
  std::error_code error;
  std::vector<fs::path> parts;
  for (const auto& entry : fs::directory_iterator(aside, error)) parts.push_back(entry.path());
  if (error) return file_error("list", aside, error.value());
  for (const fs::path& part : parts) TRY_STATUS(sync_directory(part));
  TRY_STATUS(sync_directory(aside));
  return rename_synced(parts.size() == 1 ? parts.front() : aside, out);
}

}  // namespace

Status export_folder(Session& session, const fs::path& given, int64_t shard) {
  TRY_STATUS(check_vacant(given));
  const fs::path out = TRY(absolute_folder(given));
  TRY_STATUS(make_directories(out.parent_path()));
  const NewFolder made = TRY(NewFolder::beside(out));
  Confinement::lend(made.path());  // what is split is read again
  TRY_STATUS(session.export_model(made.path()));
  TRY_STATUS(split_weights(made.path() / "model", shard));
  return move_into_place(made.path(), out);
}

}  // namespace galley
