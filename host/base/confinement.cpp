#include "host/base/confinement.hpp"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <unordered_set>

#include "host/base/below.hpp"

namespace galley {
namespace {

namespace fs = std::filesystem;

/// canonical() of what exists, the rest appended without "." and "..". Where that cannot be, a path that nothing lies below.
fs::path real_of(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  fs::path real = error ? fs::path() : fs::weakly_canonical(absolute, error);
  if (error || real.empty()) return path;
  return real.has_filename() ? real : real.parent_path();  // "folder/" is "folder"; "/" stays
}

/// What counts in this process. Never destroyed: threads may read to its very end.
struct Registry {
  std::shared_mutex mutex;
  std::vector<const Confinement*> living;
  std::unordered_set<std::string> lent;
};
Registry& registry() {
  static Registry& out = *new Registry;
  return out;
}

/// Whether the path or one of the folders in which it lies is among them.
bool lies_in(const fs::path& real, const std::unordered_set<std::string>& folders) {
  for (fs::path at = real;; at = at.parent_path()) {
    if (folders.contains(at.string())) return true;
    if (!at.has_relative_path()) return false;
  }
}

}  // namespace

fs::path reach_of(const fs::path& folder) {
  fs::path real = real_of(folder);
  const fs::path snapshots = real.parent_path(), model = snapshots.parent_path();
  std::error_code error;
  const bool hub = snapshots.filename() == "snapshots" && model.filename().string().starts_with("models--") &&
                   fs::is_directory(fs::symlink_status(model / "blobs", error));
  return hub ? model : real;
}

Error leads_out(const std::string& name, const std::string& what, const fs::path& real, const std::string& hint) {
  return recipe_error("'" + name + "' leads out of " + what + ", to " + real.string(), hint);
}

Confinement::Confinement(const std::vector<fs::path>& folders, std::string what, std::string hint)
    : what_(std::move(what)), hint_(std::move(hint)) {
  for (const fs::path& folder : folders) roots_.push_back(real_of(folder).string());
  const std::unique_lock lock(registry().mutex);
  registry().living.push_back(this);
}

Confinement::~Confinement() {
  const std::unique_lock lock(registry().mutex);
  std::erase(registry().living, this);
}

bool Confinement::holds(const fs::path& real) const {
  return std::any_of(roots_.begin(), roots_.end(), [&](const std::string& root) { return is_below(real, root); });
}

void Confinement::lend(const fs::path& path) {
  if (path.empty()) return;
  std::error_code error;
  const std::string real = (fs::is_directory(path, error) ? reach_of(path) : real_of(path)).string();
  const std::unique_lock lock(registry().mutex);
  registry().lent.insert(real);
}

void Confinement::lend_beside(const fs::path& folder, std::span<const std::string_view> names) {
  if (!any()) return;
  const fs::path reach = reach_of(folder);
  for (const std::string_view name : names) {
    std::error_code error;
    const fs::path real = fs::canonical(folder / name, error);
    if (!error && is_below(real, reach) && fs::is_regular_file(real, error)) lend(real);
  }
}

bool Confinement::any() {
  const std::shared_lock lock(registry().mutex);
  return !registry().living.empty();
}

Status Confinement::check_real(const fs::path& real, const std::string& name) {
  const std::shared_lock lock(registry().mutex);
  const auto& living = registry().living;
  if (living.empty() || std::ranges::any_of(living, [&](const Confinement* one) { return one->holds(real); })) return ok();
  if (lies_in(real, registry().lent)) return ok();
  return living.back()->leads_out(name, real);
}

Status Confinement::check(const fs::path& path) {
  if (!any()) return ok();
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  std::error_code none;
  if (error && fs::exists(path, none)) return recipe_error("cannot resolve '" + path.string() + "': " + error.message());
  if (error) return ok();
  return check_real(real, path.string());
}

}  // namespace galley
